"""Similarity matching: n:m links of objects that denote the same, using their relations."""
