"""Caching seen from outside: a simulator of caches, and a checker of traces."""
