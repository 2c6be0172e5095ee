"""One query language with the same answer wherever the data is."""
