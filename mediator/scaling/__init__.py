"""Scaling advice, never an action: what is used of systems and of the service, and whether it fits.

See docs/papers/wattdb.md.
"""
