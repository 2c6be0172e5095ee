"""The change feed: every write that took effect, once, in order per cache group."""
