"""Worked examples: schemas and data that the demo, the benchmarks and the documentation share."""
