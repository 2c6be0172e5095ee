"""Admission control by event-condition-action rules (CADL, docs/papers/overload_cadl.md)."""
