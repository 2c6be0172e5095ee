"""Where the fields of a class are, and the store calls that follow for an operation."""
