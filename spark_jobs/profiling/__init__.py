"""Profiles of unknown tables: what their columns hold, and which include which."""
