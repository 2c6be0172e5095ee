"""Where the fields of a class live, and the store calls that follow for an operation."""
