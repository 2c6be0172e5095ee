"""Where the fields of a class live, and what that means for a read or a write."""
