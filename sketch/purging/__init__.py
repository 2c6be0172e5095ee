"""Purging: requests to caches to drop written objects."""
