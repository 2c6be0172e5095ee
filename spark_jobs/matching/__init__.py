"""Matching: finds objects, and fields, of two sources that denote the same."""
