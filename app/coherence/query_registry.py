"""Cached results of queries: which are registered, and which of them a write may have changed.

Every replica keeps the registered queries of each class in an index of its own. The sketch numbers
the registrations; the number of the last one, the *registration sequence*, shows a replica whether
it knows them all. It reads it when a write begins, and the sketch lets no write end whose replica
is behind (docs/query-caching.md, "Why nothing is missed").
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
"""Queries that are parsed before the event loop goes on with what else is due."""

_GONE_SHARE: Final = 2
_GONE: Final = 1_000
"""Queries that may be in an index though they are registered no more."""

_log = logging.getLogger("portolan.coherence")


@dataclass(frozen=True, slots=True)
class ResultsChanged:
    """A write may have changed results of queries.

    Attributes:
        registered: How many queries of the class this replica knows.
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
        sequence: Up to which registration they were looked for.
    """

    numbers: Mapping[str, int]
    sequence: int


@dataclass(slots=True)
class _Known:
    """What is known of a class's queries; `sequence` 0: nothing."""

    schema: ClassSchema | None
    index: QueryIndex = field(default_factory=QueryIndex)
    numbers: dict[str, int] = field(default_factory=dict)
    sequence: int = 0


@dataclass(eq=False)
class QueryRegistry:
    _sketch: ServerSketch
    _model: Callable[[], RoutingModel]
    _known: dict[Partition, _Known] = field(default_factory=dict, init=False)
    _locks: dict[Partition, asyncio.Lock] = field(default_factory=dict, init=False)

    def depends_on(self, partition: Partition, touched: Collection[str] | None) -> bool:
        """Whether results may depend on these fields; None: on objects as a whole."""
        return self._of(partition).index.depends_on(touched)

    def sequence(self, partition: Partition) -> int:
        """Return up to which registration a class's queries are known; 0: none is."""
        return self._of(partition).sequence

    def count(self, partition: Partition) -> int:
        return len(self._of(partition).index)

    def affected(
        self,
        partition: Partition,
        effects: Callable[[], Sequence[Effect] | None],
        budget: MatchBudget | None = None,
    ) -> AffectedQueries:
        """Find the results that a write may have changed.

        `effects` returns what it did, or None if that may be anything; it is only called if there
        are queries. The `budget` is for all attempts of one write.
        """
        known = self._of(partition)
        if not known.index.depends_on(None):
            return AffectedQueries({}, known.sequence)
        changes = effects()
        names = known.index if changes is None else known.index.changed(changes, budget)
        return AffectedQueries({name: known.numbers[name] for name in names}, known.sequence)

    def forget(self, partition: Partition, affected: AffectedQueries) -> None:
        """Forget queries that are registered no more, unless they are registered anew already."""
        known = self._of(partition)
        for name, number in affected.numbers.items():
            if known.numbers.get(name) == number:
                del known.numbers[name]
                known.index.discard(name)

    async def invalidate_all(self, partition: Partition) -> AffectedQueries:
        """Treat all results of a class as changed; raises `SketchUnavailable`."""
        await self.catch_up(partition)
        affected = self.affected(partition, lambda: None)
        await self._sketch.invalidate_results(partition, tuple(affected.numbers))
        self.forget(partition, affected)
        return affected

    async def catch_up(self, partition: Partition) -> None:
        """Fetch what was registered since; raises `SketchUnavailable`."""
        known = self._of(partition)
        since = known.sequence
        news = await self._sketch.registrations(partition, since)
        # The sketch does not say which registrations have ended: too many, and all are read anew.
        if len(known.index) > _GONE_SHARE * news.count + _GONE:
            news = await self._sketch.registrations(partition, 0)
        if news.complete or news.sequence != since:
            # `_add` yields to the loop: two of them must not fill one index at the same time.
            async with self._locks.setdefault(partition, asyncio.Lock()):
                await self._add(partition, news, since)

    async def _add(self, partition: Partition, news: QueryRegistrations, since: int) -> None:
        known = _Known(self._schema(partition)) if news.complete else self._of(partition)
        if known.sequence < since and not news.complete:
            return  # it was emptied while the sketch answered, and lacks what came before
        for count, (key, number) in enumerate(news.numbers.items(), 1):
            if key not in known.numbers:
                known.index.put(key, self._parse(partition, key))
            known.numbers[key] = max(number, known.numbers.get(key, 0))
            if not count % _BATCH:
                await asyncio.sleep(0)
        # Last: until all are in the index, writes must count as behind.
        known.sequence = max(news.sequence, known.sequence)
        if news.complete:
            self._known[partition] = known

    def _of(self, partition: Partition) -> _Known:
        """Return what is known of a class; queries mean something else under another schema."""
        schema, known = self._schema(partition), self._known.get(partition)
        if known is None or known.schema is not schema:
            known = self._known[partition] = _Known(schema)
        return known

    def _schema(self, partition: Partition) -> ClassSchema | None:
        database = self._model().databases.get(partition.database)
        return None if database is None else database.schema.classes.get(partition.class_name)

    def _parse(self, partition: Partition, key: str) -> RegisteredQuery | None:
        """Parse a query; None: this replica does not understand it, under its present schema."""
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
            _log.info("a query of %s is not understood: %s", "/".join(partition), error)
            return None
        return RegisteredQuery(read.query)
