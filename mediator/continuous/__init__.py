"""Continuous queries: each operator runs on Spark or in the database, so that the plan keeps up."""
