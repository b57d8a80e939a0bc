"""Logs, traces and metrics that say what happened and never a secret."""
