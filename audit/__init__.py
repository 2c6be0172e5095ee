"""Checks of dependencies, words and references."""
