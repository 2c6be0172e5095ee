"""Coherence of schema changes: a decorator of the control plane.

A new class has no copies in any cache, and the sketch is notified before the class is created.
Otherwise an unknown partition counts as lost: everything of it is revalidated, and nothing is
cached, until no copy can be fresh. The catalogue knows whether a class ever existed: it keeps the
first proposal for each name forever.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from app.coherence.write_guard import SketchGuard
from mediator.base.errors import MediatorError
from mediator.catalogue.schema_revisions import Author
from mediator.control.plane import ControlPlane
from mediator.control.port import CAREFUL, BeforeChange, ChangeOptions, SchemaChange
from sketch.protocol.port import Partition, ServerSketch, SketchUnavailable

__all__ = ["CoherentControlPlane", "FirstProposal"]

FirstProposal: TypeAlias = Callable[[str, str], Awaitable[str]]
"""Stores a proposal unless the name has one, and returns the first (name, proposal)."""

_log = logging.getLogger("portolan.coherence")


@dataclass(eq=False)
class CoherentControlPlane:
    """Implements `ControlPlane`: notifies the sketch of schema changes, and delegates the rest.

    If the sketch does not answer, a change is made all the same, and caches stay coherent: a class
    that was not announced starts as lost, and the next read or write of a class that has changed,
    or was dropped and created again, adopts its layout.

    Attributes:
        _first_proposal: Decides which replica creates a class in the sketch.
    """

    _control: ControlPlane
    _sketch: ServerSketch
    _guard: SketchGuard
    _first_proposal: FirstProposal
    _created: set[Partition] = field(default_factory=set, init=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._control, name)

    async def set_schema(
        self,
        database: str,
        document: Any,
        *,
        dry_run: bool = False,
        version: int | None = None,
        before: BeforeChange | None = None,
        options: ChangeOptions = CAREFUL,
        author: Author | None = None,
    ) -> SchemaChange:
        if dry_run:
            return await self._control.set_schema(
                database, document, dry_run=True, version=version, options=options
            )
        previous_classes = await self._classes(database)

        async def create(names: Iterable[str]) -> None:
            # Between the check and the change: a refused change leaves nothing in the sketch.
            if before is not None:
                await before(names)
            await self._create_classes(database, names)

        async def adopt(names: Iterable[str]) -> None:
            # Not at the end: checks and backfills of objects can take minutes before.
            classes = list(names)
            await self._invalidate_classes(database, previous_classes - set(classes))
            await self._adopt_schemas(database, classes)

        return await self._control.set_schema(
            database,
            document,
            version=version,
            before=create,
            after=adopt,
            options=options,
            author=author,
        )

    async def delete_schema(
        self, database: str, *, dry_run: bool = False, version: int | None = None
    ) -> dict[str, Any]:
        classes = await self._classes(database)
        deletion = await self._control.delete_schema(database, dry_run=dry_run, version=version)
        if not dry_run:
            await self._invalidate_classes(database, classes)
        return deletion

    async def _classes(self, database: str) -> frozenset[str]:
        databases = await self._control.databases()
        return frozenset(
            next((item["classes"] for item in databases if item["name"] == database), ())
        )

    async def _create_classes(self, database: str, names: Iterable[str]) -> None:
        for partition in {Partition(database, name) for name in names} - self._created:
            try:
                await self._create(partition)
            except (MediatorError, SketchUnavailable) as error:
                _log.warning("the sketch has not created %s: %s", "/".join(partition), error)
            else:
                self._created.add(partition)

    async def _create(self, partition: Partition) -> None:
        proposal = secrets.token_hex(16)
        if await self._first_proposal(f"sketch:{'/'.join(partition)}", proposal) == proposal:
            await self._sketch.create(partition)

    async def _adopt_schemas(self, database: str, names: Iterable[str]) -> None:
        """Invalidate results: under another schema, queries can have other results."""
        for name in names:
            try:
                await self._guard.adopt_layout(database, name)
                await self._guard.invalidate_results(database, name)
            except MediatorError as error:
                _log.warning("results of %s/%s were not invalidated: %s", database, name, error)

    async def _invalidate_classes(self, database: str, names: Iterable[str]) -> None:
        """Invalidate deleted classes: another class can get the name before all copies expire."""
        for name in names:
            try:
                await self._guard.invalidate_class(database, name)
            except MediatorError as error:
                _log.warning("copies of %s/%s were not invalidated: %s", database, name, error)
