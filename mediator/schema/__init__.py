"""The schema tree: databases, classes, fields, and the needs annotated on them."""
