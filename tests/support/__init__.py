"""Fixtures and builders of the tests."""
