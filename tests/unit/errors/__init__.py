"""Tests of libs/errors."""
