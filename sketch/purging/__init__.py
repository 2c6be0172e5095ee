"""Purging: caches are requested to forget what was written."""
