"""NDJSON into a class and out of it, line by line."""
