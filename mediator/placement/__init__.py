"""Placement: which system serves which node of a schema, and why."""
