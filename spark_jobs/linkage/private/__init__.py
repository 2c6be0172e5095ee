"""Linking records of several owners without showing them: keyed encodings, compared by P4Join.

Encoding is the owner's work, on the owner's machine, and needs nothing but the base install.
"""
