"""Scaling advice, never an action: utilisation of systems and the service, and the right size.

See docs/papers/wattdb.md.
"""
