"""Backups: an installation's data in files, and its restoration."""
