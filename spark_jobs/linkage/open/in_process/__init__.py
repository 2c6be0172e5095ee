"""Open linkage in one process: Splink on DuckDB, on records that Spark prepared."""
