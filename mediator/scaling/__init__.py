"""Scaling advice: what is used of systems and of the service, and whether they fit.

See docs/papers/wattdb.md.

It is advice and never an action: who runs the installation decides, or what they run it with does.
"""
