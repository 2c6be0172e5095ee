"""Values that several packages share: operations, queries, changes, and what they mean."""
