"""Caches over a workload in virtual time: what lifetimes are worth."""
