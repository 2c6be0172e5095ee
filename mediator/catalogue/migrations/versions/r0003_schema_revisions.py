"""The last schemas of each database, with when and by whom they were set."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
additive = True

_TABLE = """
CREATE TABLE portolan_catalogue.schema_revisions (
    database_id TEXT REFERENCES portolan_catalogue.databases (id) ON DELETE CASCADE,
    version BIGINT,
    document JSONB NOT NULL,
    at TIMESTAMPTZ,
    author JSONB,
    changes JSONB,
    PRIMARY KEY (database_id, version)
)
"""
_PRESENT = """
INSERT INTO portolan_catalogue.schema_revisions (database_id, version, document)
SELECT id, version, document FROM portolan_catalogue.databases
"""


def upgrade() -> None:
    op.execute(_TABLE)
    op.execute(_PRESENT)


def downgrade() -> None:
    op.execute("DROP TABLE portolan_catalogue.schema_revisions")
