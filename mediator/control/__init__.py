"""The control plane: systems, schemas, placements, and what is watched in the background."""
