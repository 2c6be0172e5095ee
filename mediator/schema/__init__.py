"""The schema tree: databases, classes, fields, and their annotated requirements."""
