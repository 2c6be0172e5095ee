"""Where the fields of a class are, and the store calls of an operation."""
