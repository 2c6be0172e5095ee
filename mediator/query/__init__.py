"""One query language, whose answers do not depend on the placement of data."""
