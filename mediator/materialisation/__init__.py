"""Primary copies of whole objects, within a bound of their originals."""
