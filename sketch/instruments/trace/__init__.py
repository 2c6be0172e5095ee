"""Finds out from a trace of reads and writes how stale the reads were (docs/instruments.md)."""
