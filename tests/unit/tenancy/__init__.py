"""Tests of libs/tenancy."""
