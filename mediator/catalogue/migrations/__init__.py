"""The catalogue's revisions, as alembic reads them; see docs/operations.md, Upgrading."""
