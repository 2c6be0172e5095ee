"""Invalidation of query results by writes: registered queries, and an index over them."""
