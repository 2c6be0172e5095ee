"""Foundations of every package: the clock, errors, observations, tasks."""
