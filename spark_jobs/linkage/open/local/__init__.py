"""Open linkage in the process of the worker, without Spark: the same stages, on tables of Arrow."""
