"""Values that several packages share: operations, queries, changes, and their semantics."""
