"""Execution of continuous queries: Structured Streaming, with fragments in PostgreSQL."""
