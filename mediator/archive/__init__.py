"""Backups: what an installation holds, in files, and the way back."""
