"""Continuous queries: each operator on Spark or in the database, wherever the plan keeps up."""
