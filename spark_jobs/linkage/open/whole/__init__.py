"""Whole records compared by what they have in common, weighted by rarity: for titles and texts."""
