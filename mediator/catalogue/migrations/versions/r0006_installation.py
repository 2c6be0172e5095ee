"""The id of the installation."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
additive = True

_TABLE = """
CREATE TABLE portolan_catalogue.installation ("only" INTEGER PRIMARY KEY, id TEXT NOT NULL)
"""
_ROW = """
INSERT INTO portolan_catalogue.installation ("only", id) VALUES (1, gen_random_uuid()::text)
"""


def upgrade() -> None:
    op.execute(_TABLE)
    op.execute(_ROW)


def downgrade() -> None:
    op.execute("DROP TABLE portolan_catalogue.installation")
