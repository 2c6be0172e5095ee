"""The registered queries with cached results, and the search for those that a write may change.

Every replica has its own index of the registered queries of each class. The sketch numbers the
registrations; the number of the last one, the *registration sequence*, shows a replica whether it
knows them all. The replica reads it when a write begins, and the sketch does not let a write end
whose replica is behind (docs/query-caching.md, "Why nothing is missed").
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from app.http.paths import parse_pairs
from app.http.problems import HttpError
from mediator.base.errors import MediatorError
from mediator.model.effects import Effect
from mediator.query.invalidation.index import QueryIndex
from mediator.query.invalidation.registered_query import MatchBudget, RegisteredQuery
from mediator.query.parameters import parse_parameters
from mediator.query.parser import MAX_LIMIT
from mediator.routing.model import RoutingModel
from mediator.schema.tree import ClassSchema
from sketch.protocol.keys import query_of_key
from sketch.protocol.port import Partition, QueryRegistrations, ServerSketch

__all__ = ["AffectedQueries", "OnResultsChanged", "QueryRegistry", "ResultsChanged"]

_BATCH: Final = 5
"""Queries that are parsed before the event loop serves other tasks."""

_MAX_INDEX_RATIO: Final = 2
_INDEX_SLACK: Final = 1_000
"""An index larger than this multiple of the registered queries, plus the slack, is reread."""

_log = logging.getLogger("portolan.coherence")


@dataclass(frozen=True, slots=True)
class ResultsChanged:
    """A write may have changed results of queries.

    Attributes:
        registered: How many queries of the class are in this replica's index.
    """

    partition: Partition
    changed: int
    registered: int


OnResultsChanged: TypeAlias = Callable[[ResultsChanged], None]


@dataclass(frozen=True, slots=True)
class AffectedQueries:
    """Queries whose results a write may have changed.

    Attributes:
        numbers: Their keys, with the numbers of their registrations.
        sequence: The last registration that was considered.
    """

    numbers: Mapping[str, int]
    sequence: int


@dataclass(slots=True)
class _ClassQueries:
    """The known queries of a class, up to the registration `sequence`; 0: none."""

    schema: ClassSchema | None
    index: QueryIndex = field(default_factory=QueryIndex)
    numbers: dict[str, int] = field(default_factory=dict)
    sequence: int = 0


@dataclass(eq=False)
class QueryRegistry:
    _sketch: ServerSketch
    _model: Callable[[], RoutingModel]
    _classes: dict[Partition, _ClassQueries] = field(default_factory=dict, init=False)
    _locks: dict[Partition, asyncio.Lock] = field(default_factory=dict, init=False)

    def depends_on(self, partition: Partition, touched: Collection[str] | None) -> bool:
        """Whether results may depend on these fields; None: on whole objects."""
        return self._queries_of(partition).index.depends_on(touched)

    def sequence(self, partition: Partition) -> int:
        """Return the last registration of a class that is known; 0: none."""
        return self._queries_of(partition).sequence

    def count(self, partition: Partition) -> int:
        return len(self._queries_of(partition).index)

    def affected(
        self,
        partition: Partition,
        effects: Callable[[], Sequence[Effect] | None],
        budget: MatchBudget | None = None,
    ) -> AffectedQueries:
        """Find the results that a write may have changed.

        `effects` returns the effects of the write, or None if they are unknown; it is only called
        if there are queries. The `budget` is shared by all attempts of one write.
        """
        queries = self._queries_of(partition)
        if not queries.index.depends_on(None):
            return AffectedQueries({}, queries.sequence)
        changes = effects()
        names = queries.index if changes is None else queries.index.changed(changes, budget)
        return AffectedQueries({name: queries.numbers[name] for name in names}, queries.sequence)

    def forget(self, partition: Partition, affected: AffectedQueries) -> None:
        """Forget queries that are no longer registered, unless they were registered again."""
        queries = self._queries_of(partition)
        for name, number in affected.numbers.items():
            if queries.numbers.get(name) == number:
                del queries.numbers[name]
                queries.index.discard(name)

    async def invalidate_all(self, partition: Partition) -> AffectedQueries:
        """Treat all results of a class as changed; raise `SketchUnavailable`."""
        await self.catch_up(partition)
        affected = self.affected(partition, lambda: None)
        await self._sketch.invalidate_results(partition, tuple(affected.numbers))
        self.forget(partition, affected)
        return affected

    async def catch_up(self, partition: Partition) -> None:
        """Fetch new registrations; raise `SketchUnavailable`."""
        queries = self._queries_of(partition)
        since = queries.sequence
        registrations = await self._sketch.registrations(partition, since)
        # The sketch does not report ended registrations: if there are too many, all are reread.
        if len(queries.index) > _MAX_INDEX_RATIO * registrations.count + _INDEX_SLACK:
            registrations = await self._sketch.registrations(partition, 0)
        if registrations.complete or registrations.sequence != since:
            # `_add` yields to the loop: two of them must not fill one index at the same time.
            async with self._locks.setdefault(partition, asyncio.Lock()):
                await self._add(partition, registrations, since)

    async def _add(
        self, partition: Partition, registrations: QueryRegistrations, since: int
    ) -> None:
        queries = (
            _ClassQueries(self._schema(partition))
            if registrations.complete
            else self._queries_of(partition)
        )
        if queries.sequence < since and not registrations.complete:
            return  # the index was emptied during the call, and lacks earlier registrations
        for count, (key, number) in enumerate(registrations.numbers.items(), 1):
            if key not in queries.numbers:
                queries.index.put(key, self._parse(partition, key))
            queries.numbers[key] = max(number, queries.numbers.get(key, 0))
            if not count % _BATCH:
                await asyncio.sleep(0)
        # Last: until all are in the index, writes must count as behind.
        queries.sequence = max(registrations.sequence, queries.sequence)
        if registrations.complete:
            self._classes[partition] = queries

    def _queries_of(self, partition: Partition) -> _ClassQueries:
        """Return the known queries of a class; another schema changes their meaning."""
        schema, queries = self._schema(partition), self._classes.get(partition)
        if queries is None or queries.schema is not schema:
            queries = self._classes[partition] = _ClassQueries(schema)
        return queries

    def _schema(self, partition: Partition) -> ClassSchema | None:
        database = self._model().databases.get(partition.database)
        return None if database is None else database.schema.classes.get(partition.class_name)

    def _parse(self, partition: Partition, key: str) -> RegisteredQuery | None:
        """Parse a query; None: this replica cannot parse it under its current schema."""
        database = self._model().databases.get(partition.database)
        text = query_of_key(key)
        if database is None or text is None or partition.class_name not in database.classes:
            return None
        try:
            pairs = parse_pairs(text.encode())
            read = parse_parameters(
                pairs, database.schema, partition.class_name, max_limit=MAX_LIMIT
            )
        except (MediatorError, HttpError) as error:
            _log.info("a registered query of %s cannot be parsed: %s", "/".join(partition), error)
            return None
        return RegisteredQuery(read.query)
