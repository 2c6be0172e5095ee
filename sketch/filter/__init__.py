"""The Bloom filter, the counting Bloom filter, and their one hash family."""
