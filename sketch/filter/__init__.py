"""Bloom filters, plain and counting, on one hash family."""
