"""Open linkage in the worker's process, without Spark: the same stages, on Arrow tables."""
