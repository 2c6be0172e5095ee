"""Materialised views: copies of whole objects, within a bound of their originals."""
