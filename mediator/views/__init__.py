"""Incremental views: query results that follow the change feed, by networks of nodes."""
