"""Revisions of a schema may be added before their database, in one transaction with it."""

from __future__ import annotations

from alembic import op

revision = "0007"
down_revision = "0006"
additive = True

_ALTERED = """
ALTER TABLE portolan_catalogue.schema_revisions
ALTER CONSTRAINT schema_revisions_database_id_fkey {how}
"""


def upgrade() -> None:
    op.execute(_ALTERED.format(how="DEFERRABLE INITIALLY DEFERRED"))


def downgrade() -> None:
    op.execute(_ALTERED.format(how="NOT DEFERRABLE"))
