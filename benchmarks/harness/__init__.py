"""Shared by benchmarks: services, load, baselines, faults, reports."""
