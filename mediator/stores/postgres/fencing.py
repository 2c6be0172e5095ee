"""Fences: a fenced record takes no more writes of a token, however late they come (`Store.fence`).

The tokens against which a record is fenced are in its row (`_fences`), each with its time. A write
with a token reads them as it reads versions and intents: in the newest row, which it has locked
(see `write`). So row and lock alone decide the order, and fences cost nothing for writes to
unfenced records. W is the write, F the fence:

- F comes first, but after W's snapshot was taken, as while W waits at the advisory lock or for the
  row: locking the row, W gets the newest version (EvalPlanQual), with the fence.
- F comes while W has the row lock: F waits until W is committed or rolled back. The upsert works on
  the newest row, so it returns the versions of W, if W has taken effect.
- There is no row (or it is just being reaped), and F inserts a tombstone without versions. A W
  whose snapshot is older does not see it. If W inserts, it finds the row in the index, waiting for
  F if need be, and does nothing; its retry finds the fence. If W updates or deletes, it does
  nothing and returns MISSING, which is true by its snapshot.
- There is no row, and W has inserted one, not yet committed: F waits for it in the index, and then
  fences W's row, or inserts the tombstone if W was rolled back.
- W is in flight, or in a socket's buffer: when it arrives, it sees the fence.
- W's session is frozen in the middle of its statement: if it has the row lock, F waits until its
  deadline and fails; if not, W will find the fence.

No write removes fences. The age of a fenced tombstone counts from its last fence, so that it is not
reaped earlier. Fences past their retention are removed when the record is fenced again.
"""

from __future__ import annotations

from typing import Final

from mediator.stores.port import RETENTION_S
from mediator.stores.postgres.layout import RecordTable
from mediator.stores.postgres.sql import qualified, quoted

__all__ = ["fence_statement"]

_FENCE: Final = """
INSERT INTO {table} AS own (id, _creation_version, _deleted, _fences) VALUES (
    $1, 0, clock_timestamp(),
    jsonb_build_object($2::text, extract(epoch FROM clock_timestamp()))
)
ON CONFLICT (id) DO UPDATE SET
    _deleted = CASE WHEN own._deleted IS NOT NULL THEN excluded._deleted END,
    _fences = coalesce((
        SELECT jsonb_object_agg(token, at) FROM jsonb_each(own._fences) AS fence (token, at)
        WHERE at::numeric > extract(epoch FROM clock_timestamp()) - {kept_s}
    ), '{{}}') || excluded._fences
RETURNING {versions}
"""


def fence_statement(records: RecordTable) -> str:
    """Return the statement that fences a record ($1) against a token ($2).

    It returns one row: the versions of the record, of its tombstone, or zeros.
    """
    return _FENCE.format(
        table=qualified(records.table),
        kept_s=RETENTION_S,
        versions=", ".join(quoted(column.name) for column in records.versions.values()),
    )
