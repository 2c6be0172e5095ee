"""The control plane: systems, schemas, placements, and background tasks."""
