"""Matching: which objects, and which fields, of two sources denote the same."""
