"""Polyglot persistence: knows no HTTP and no sketch."""
