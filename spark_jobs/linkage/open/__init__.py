"""Linking and deduplicating records that may be seen: blocks, comparisons, weights, clusters."""
