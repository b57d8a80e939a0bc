"""Admission of bytes: who may upload what, how much, and until when."""
