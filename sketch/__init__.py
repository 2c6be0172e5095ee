"""The Cache Sketch: bounded staleness for cached records."""
