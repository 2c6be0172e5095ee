"""Destinations of results of runs, besides their files."""
