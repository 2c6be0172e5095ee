"""Versions of schemas, for requests that are pinned to one: found, followed to now, and kept.

A version is read from the catalogue when it is first requested after a change of its database, and
kept in memory until the next one: the work of all other requests is one look into a dictionary.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from mediator.base.clock import Clock
from mediator.base.errors import Invalid, Location, NotFound, SchemaRetired
from mediator.base.offload import offload
from mediator.catalogue.schema_revisions import FormerVersion
from mediator.catalogue.schemas import CatalogueSchemas
from mediator.data_plane.executor import Executor
from mediator.routing.former_schemas import FormerSchema, former_schema
from mediator.routing.model import DatabaseRoute
from mediator.schema.name_changes import current_names

__all__ = ["HEADER", "FormerSchemas", "PinnedUse", "PinnedUses", "Sender"]


USES_KEPT: Final = 1_000
SENDERS_KEPT: Final = 20

Sender: TypeAlias = tuple[str, ...]
"""Tenant and subject of a request; empty where requests are not authenticated."""

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(slots=True)
class PinnedUse:
    """The use of one version.

    Attributes:
        last: When it was used last, in seconds since 1970.
        senders: When each of the last senders used it last.
    """

    version: int
    requests: int
    last: float
    senders: OrderedDict[Sender, float] = field(default_factory=OrderedDict)


class PinnedUses:
    """Which versions requests were pinned to since this process started, in bounded memory.

    What was not seen for longest is forgotten.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: OrderedDict[tuple[str, int], PinnedUse] = OrderedDict()

    def note(self, database_id: str, version: int, sender: Sender) -> None:
        key, now = (database_id, version), self._clock.now()
        use = self._uses.setdefault(key, PinnedUse(version, 0, now))
        use.requests, use.last = use.requests + 1, now
        use.senders[sender] = now
        _bound(use.senders, sender, SENDERS_KEPT)
        _bound(self._uses, key, USES_KEPT)

    def of(self, database_id: str) -> list[PinnedUse]:
        """Return the uses of a database's versions, the lowest version first."""
        found = [use for (id_, _), use in self._uses.items() if id_ == database_id]
        return sorted(found, key=lambda use: use.version)


def _bound(kept: OrderedDict[_K, _V], key: _K, most: int) -> None:
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


_KEPT: Final = 64
"""Versions kept in memory, of all databases."""

HEADER: Final = "Portolan-Schema"


class FormerSchemas:
    """Finds versions of schemas.

    Attributes:
        uses: Which of them requests were pinned to.
    """

    def __init__(self, catalogue: CatalogueSchemas, executor: Executor, clock: Clock) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._known: OrderedDict[tuple[str, int], FormerSchema] = OrderedDict()
        self._loading = asyncio.Lock()
        self.uses = PinnedUses(clock)

    async def find(self, database: str, version: int, sender: Sender = ()) -> FormerSchema:
        """Return a version as it is now, and note that `sender` has used it.

        Raises:
            NotFound: There is no such database.
            Invalid: It has not had that many versions.
            SchemaRetired: The version is retired, or not all that led from it to now is kept.
            Unavailable: The catalogue does not answer.
        """
        now = await self._present(database, version)
        if version < now.retired_before:
            raise _retired(now, version, "is retired")
        found = self._kept(now, version) or await self._loaded(now, version)
        self.uses.note(now.id, version, sender)
        return found

    async def _present(self, database: str, version: int) -> DatabaseRoute:
        """Return the routes of a database, newer ones if they are needed for that version."""
        now = self._executor.model.databases.get(database)
        if now is None or version > now.version:
            now = (await self._executor.newest_model()).databases.get(database)
        if now is None:
            raise NotFound(f"There is no database {database}.")
        if version > now.version:
            locations = [Location(HEADER, f"is greater than {now.version}, the present version")]
            raise Invalid("The schema has not had that many versions.", locations=locations)
        return now

    def _kept(self, now: DatabaseRoute, version: int) -> FormerSchema | None:
        key = now.id, version
        found = self._known.get(key)
        if found is None or found.now is not now:
            return None
        self._known.move_to_end(key)
        return found

    async def _loaded(self, now: DatabaseRoute, version: int) -> FormerSchema:
        async with self._loading:  # many may request the same after a change
            found = self._kept(now, version)
            if found is None:
                former = await self._catalogue.former(now.id, version, now.version)
                if former is None:
                    raise _retired(now, version, "is not kept, or not all changes since")
                found = await offload(True, _followed, now, version, former)
                self._known[now.id, version] = found
                if len(self._known) > _KEPT:
                    self._known.popitem(last=False)
            return found


def _followed(now: DatabaseRoute, version: int, former: FormerVersion) -> FormerSchema:
    return former_schema(now, version, current_names(former.document, former.changes))


def _retired(now: DatabaseRoute, version: int, why: str) -> SchemaRetired:
    return SchemaRetired(
        f"Version {version} of the schema of {now.schema.database} {why}. Use a later one, such as"
        f" the present one, {now.version}, or send no {HEADER} to use the present names always.",
        extra={"present": now.version, "retired_before": now.retired_before},
    )
