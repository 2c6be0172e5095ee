"""Similarity matching: objects of two sources that denote the same, with relations and n:m."""
