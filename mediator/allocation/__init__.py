"""Allocation of processes to machines: minimal traffic between them, or minimal price."""
