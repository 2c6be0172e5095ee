"""Coordination: volatile state that replicas share, in Redis. Losing it loses no data."""
