"""Incremental views: results of queries that follow the change feed, by networks of nodes."""
