"""Polyglot persistence, independent of HTTP and the sketch."""
