"""Matching: records by their similarity, and schemas by their names, values and structure."""
