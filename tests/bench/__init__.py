"""Measurements: speed and memory as ratios within one run, never asserted in a test."""
