"""Standing queries on Spark: executes the rules of a plan over micro-batches."""
