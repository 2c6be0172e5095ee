"""The catalogue: durable metadata in PostgreSQL."""
