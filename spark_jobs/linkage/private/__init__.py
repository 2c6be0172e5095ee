"""Linking records of several owners without disclosing them: keyed encodings, compared by P4Join.

Encoding is the owner's work, on the owner's machine, and needs only the base install.
"""
