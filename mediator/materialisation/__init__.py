"""Materialised views: copies of entire objects, within a staleness bound of their originals."""
