"""Matching: records by their similarity, and schemas by their names, values and structure."""
"""Matching: which objects, and which fields, of two sources denote the same."""
