"""Schema versions of pinned requests: found, mapped to the present schema, and cached.

A version is read from the catalogue at its first request after a change of its database, and cached
until the next change: all other requests cost one dictionary look-up.
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


MAX_USES: Final = 1_000
MAX_SENDERS: Final = 20

Sender: TypeAlias = tuple[str, ...]
"""Tenant and subject of a request; empty where requests are not authenticated."""

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(slots=True)
class PinnedUse:
    """The use of one version.

    Attributes:
        last: The time of the last use, in seconds since 1970.
        senders: The time of each recent sender's last use.
    """

    version: int
    requests: int
    last: float
    senders: OrderedDict[Sender, float] = field(default_factory=OrderedDict)


class PinnedUses:
    """The versions to which requests were pinned since this process started, in bounded memory.

    The least recently used are dropped.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uses: OrderedDict[tuple[str, int], PinnedUse] = OrderedDict()

    def note(self, database_id: str, version: int, sender: Sender) -> None:
        key, now = (database_id, version), self._clock.now()
        use = self._uses.setdefault(key, PinnedUse(version, 0, now))
        use.requests, use.last = use.requests + 1, now
        use.senders[sender] = now
        _bound(use.senders, sender, MAX_SENDERS)
        _bound(self._uses, key, MAX_USES)

    def of(self, database_id: str) -> list[PinnedUse]:
        """Return the uses of a database's versions, lowest version first."""
        uses = [use for (id_, _), use in self._uses.items() if id_ == database_id]
        return sorted(uses, key=lambda use: use.version)


def _bound(entries: OrderedDict[_K, _V], key: _K, max_entries: int) -> None:
    entries.move_to_end(key)
    if len(entries) > max_entries:
        entries.popitem(last=False)


_MAX_VERSIONS: Final = 64
"""Maximum number of versions in memory, of all databases."""

HEADER: Final = "Portolan-Schema"


class FormerSchemas:
    """Finds versions of schemas.

    Attributes:
        uses: Their uses by pinned requests.
    """

    def __init__(self, catalogue: CatalogueSchemas, executor: Executor, clock: Clock) -> None:
        self._catalogue = catalogue
        self._executor = executor
        self._cache: OrderedDict[tuple[str, int], FormerSchema] = OrderedDict()
        self._loading = asyncio.Lock()
        self.uses = PinnedUses(clock)

    async def find(self, database: str, version: int, sender: Sender = ()) -> FormerSchema:
        """Return a version mapped to the present, and record its use by `sender`.

        Raises:
            NotFound: There is no such database.
            Invalid: It has not had that many versions.
            SchemaRetired: The version is retired, or the changes since are not all stored.
            Unavailable: The catalogue does not answer.
        """
        present = await self._present(database, version)
        if version < present.retired_before:
            raise _retired(present, version, "is retired")
        schema = self._cached(present, version) or await self._load(present, version)
        self.uses.note(present.id, version, sender)
        return schema

    async def _present(self, database: str, version: int) -> DatabaseRoute:
        """Return the routes of a database, newer ones if that version needs them."""
        present = self._executor.model.databases.get(database)
        if present is None or version > present.version:
            present = (await self._executor.newest_model()).databases.get(database)
        if present is None:
            raise NotFound(f"There is no database {database}.")
        if version > present.version:
            locations = [
                Location(HEADER, f"is greater than {present.version}, the present version")
            ]
            raise Invalid("The schema has not had that many versions.", locations=locations)
        return present

    def _cached(self, present: DatabaseRoute, version: int) -> FormerSchema | None:
        key = present.id, version
        schema = self._cache.get(key)
        if schema is None or schema.now is not present:
            return None
        self._cache.move_to_end(key)
        return schema

    async def _load(self, present: DatabaseRoute, version: int) -> FormerSchema:
        async with self._loading:  # many requests may need it after a change
            schema = self._cached(present, version)
            if schema is None:
                former = await self._catalogue.former(present.id, version, present.version)
                if former is None:
                    raise _retired(present, version, "is not kept, or not all changes since")
                schema = await offload(True, _map_to_present, present, version, former)
                self._cache[present.id, version] = schema
                if len(self._cache) > _MAX_VERSIONS:
                    self._cache.popitem(last=False)
            return schema


def _map_to_present(present: DatabaseRoute, version: int, former: FormerVersion) -> FormerSchema:
    return former_schema(present, version, current_names(former.document, former.changes))


def _retired(present: DatabaseRoute, version: int, reason: str) -> SchemaRetired:
    return SchemaRetired(
        f"Version {version} of the schema of {present.schema.database} {reason}. Use a later one,"
        f" such as the present one, {present.version}, or send no {HEADER} to use the present names"
        " always.",
        extra={"present": present.version, "retired_before": present.retired_before},
    )
