"""Profiles of unknown tables: statistics of columns, and inclusion dependencies."""
