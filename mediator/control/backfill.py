"""Backfills required fields: objects that lack one get its default, by ordinary writes.

Each write requires the versions that it read, so it replaces no concurrent write. Repetition is
harmless: an object with a value is left unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Final
from uuid import uuid4

from mediator.base.clock import Clock
from mediator.base.concurrency import concurrently
from mediator.base.errors import NotFound, PreconditionFailed
from mediator.data_plane.port import DataPlane, pages
from mediator.model.operations import Condition, Outcome, ReadModifyWrite
from mediator.routing.model import ClassRoute
from mediator.schema.tightening import TightenedConstraint

__all__ = ["BACKFILL_S", "Backfill"]

BACKFILL_S: Final = 60.0
"""Seconds for which objects are written; the next request continues."""

_CONCURRENCY: Final = 20


@dataclass(frozen=True)
class Backfill:
    _plane: DataPlane
    _clock: Clock

    async def run(self, database: str, required: Iterable[TightenedConstraint]) -> int:
        """Give objects the defaults of required fields; return how many objects were written.

        Raises:
            MediatorError: A system does not answer, or clients keep writing to an object.
        """
        until, written = self._clock.monotonic() + BACKFILL_S, 0
        for class_name, group in groupby(required, lambda constraint: constraint.class_name):
            route = await self._plane.route(database, class_name)
            fields = tuple(sorted(constraint.field for constraint in group))
            async for page in pages(self._plane, database, class_name, fields=fields):
                if self._clock.monotonic() >= until:
                    return written
                incomplete = [o for o in page if _is_incomplete(o, fields)]
                for start in range(0, len(incomplete), _CONCURRENCY):
                    chunk = incomplete[start : start + _CONCURRENCY]
                    await concurrently(
                        self._fill(database, route, outcome.id, fields) for outcome in chunk
                    )
                written += len(incomplete)
        return written

    async def _fill(
        self, database: str, route: ClassRoute, id_: str, fields: Sequence[str]
    ) -> None:
        with suppress(NotFound, PreconditionFailed):  # it was deleted meanwhile
            await self._plane.write(
                ReadModifyWrite(
                    database,
                    route.schema.name,
                    id_,
                    f"backfill-{uuid4().hex}",
                    Condition(present=True),
                    compute=partial(_with_defaults, route, fields),
                )
            )


def _with_defaults(
    route: ClassRoute, fields: Sequence[str], body: dict[str, Any]
) -> dict[str, Any]:
    missing = [name for name in fields if body.get(name) is None]
    return body | route.codec.defaults(missing)


def _is_incomplete(outcome: Outcome, fields: Sequence[str]) -> bool:
    return any((outcome.values or {}).get(name) is None for name in fields)
