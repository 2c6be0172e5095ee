"""Privacy-preserving record linkage of several owners: keyed encodings, compared by P4Join.

Owners encode records on their own machines, with the base install alone.
"""
