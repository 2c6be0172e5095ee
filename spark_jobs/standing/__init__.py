"""Standing queries on Spark: the rules of a plan, executed over micro-batches."""
