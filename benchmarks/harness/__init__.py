"""What benchmarks share: services, load, baselines, faults, reports."""
