"""Compares whole records by shared features weighted by rarity: for titles and texts."""
