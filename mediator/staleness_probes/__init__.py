"""Measures how stale reads are on live paths, as an interval (docs/instruments.md)."""
