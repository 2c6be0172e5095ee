"""Keeps caches coherent: reads get TTLs from the sketch, and writes are announced to it."""
