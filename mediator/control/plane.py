"""The control plane that HTTP and the command line use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mediator.base.errors import Invalid, Location, MediatorError
from mediator.base.suggestions import did_you_mean
from mediator.catalogue.connection import Catalogue
from mediator.catalogue.schema_revisions import Author, SchemaRevision
from mediator.control.coordination_binding import CoordinationBinding
from mediator.control.effects import would_move
from mediator.control.evaluation import PlacementEvaluation
from mediator.control.former_schemas import FormerSchemas, PinnedUse
from mediator.control.known_systems import amend_statements, check_seen
from mediator.control.port import (
    CAREFUL,
    AfterChange,
    BeforeChange,
    ChangeOptions,
    SchemaChange,
    SeenStatements,
    SystemRegistration,
    SystemUse,
)
from mediator.control.registry import KnownSystem, Registry
from mediator.control.schema_checks import without_copies
from mediator.control.schemas import Schemas
from mediator.data_plane.executor import Executor
from mediator.placement.advice import advise
from mediator.placement.rank import ROOT
from mediator.routing.model import RoutingModel
from mediator.scaling.advisor import Advisor
from mediator.schema.annotations import Capability, Metric
from mediator.stores.port import StoreError
from mediator.stores.systems import Systems

__all__ = ["ControlPlane"]

PING_S = 2.0


@dataclass(eq=False)
class ControlPlane:
    """Schemas, systems, placements. Methods raise only `MediatorError`."""

    _catalogue: Catalogue
    _registry: Registry
    _systems: Systems
    _schemas: Schemas
    _evaluation: PlacementEvaluation
    _advisor: Advisor
    _executor: Executor
    _former: FormerSchemas
    _binding: CoordinationBinding | None

    async def databases(self) -> list[dict[str, Any]]:
        """Return name, mode, version and classes of each database."""
        return await self._schemas.all()

    async def schema(self, database: str) -> SchemaChange:
        return await self._schemas.present(database)

    async def stored_schema(self, database: str) -> tuple[dict[str, Any], int]:
        """Return a schema as stored, and its version, without deciding placements."""
        stored = await self._schemas.stored(database)
        return stored.document, stored.version

    async def overrides(self, database: str) -> list[dict[str, Any]]:
        """List the overrides in force: node, system, reason, until; raises `NotFound`."""
        in_force = await self._schemas.overrides(database)
        return [{"node": node, **override} for node, override in in_force.items()]

    async def set_schema(
        self,
        database: str,
        document: Any,
        *,
        dry_run: bool = False,
        version: int | None = None,
        before: BeforeChange | None = None,
        after: AfterChange | None = None,
        options: ChangeOptions = CAREFUL,
        author: Author | None = None,
    ) -> SchemaChange:
        """Validate, place, prepare the stores, store, and put a new routing model in force.

        Args:
            database: Its name.
            document: The schema as JSON.
            dry_run: Only return the effects.
            version: The version the caller has seen; 0: none yet.
            before: Called before anything is changed, once the schema is valid.
            after: Called once the change is in force.
            options: Permitted effects on existing objects.
            author: Who sets it; None: unknown.

        Raises:
            SchemaInvalid: With the location of every mistake.
            Invalid: A class to drop does not exist, or is still in the schema.
            Unplaceable: No system serves a node; the routing model is unchanged.
            DataWouldMove: Existing data would move; `extra["plan"]`.
            ConstraintViolated: Objects break a tightened constraint; `extra["violations"]`.
            Conflict: The time was too short to check all of them.
            PreconditionFailed: The stored version differs.
        """
        if dry_run:
            return await self._schemas.try_out(database, document, version=version, options=options)
        return await self._schemas.put(
            database,
            document,
            version=version,
            before=before,
            after=after,
            options=options,
            author=author,
        )

    async def index_builds(self, database: str) -> list[dict[str, Any]]:
        """List the indexes that this replica is building over existing objects.

        Each has `class`, `system`, `indexes`, `seconds`, and `share`: from 0 to 1; None: unknown.
        """
        return await self._schemas.index_builds(database)

    async def schema_revisions(
        self, database: str, before: int | None, limit: int
    ) -> Sequence[SchemaRevision]:
        """Return up to `limit` revisions of a schema before a version, newest first."""
        return await self._schemas.revisions(database, before, limit)

    async def schema_revision(
        self, database: str, version: int
    ) -> tuple[SchemaRevision, dict[str, Any]]:
        """Return a revision of a schema, and the schema at that revision."""
        return await self._schemas.revision(database, version)

    async def retire_versions(
        self, database: str, before: int, *, dry_run: bool = False
    ) -> list[PinnedUse]:
        """Stop clients from pinning versions below this one; return the uses that end, or would.

        A lower number than the current one reverses this. Raises `NotFound`, `Invalid`.
        """
        retired = await self._schemas.retire(database, before, dry_run=dry_run)
        return [use for use in self._former.uses.of(retired.id) if use.version < before]

    async def pinned_versions(self, database: str) -> tuple[int, list[PinnedUse]]:
        """Return the lowest version that is served, and the uses of versions in this process.

        Raises `NotFound`.
        """
        stored = await self._schemas.stored(database)
        return stored.retired_before, self._former.uses.of(stored.id)

    async def place(
        self,
        changes: Mapping[str, tuple[Any, ChangeOptions]],
        statements: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Return if all of these schemas could be set, by the names of their databases.

        `statements` about systems count as already added (`add_statements`). Raises as
        `set_schema`.
        """
        for system_statements in statements.values():
            _check_statements(system_statements["metrics"], system_statements["declared"])
        candidates = self._registry.candidates(statements)
        for database, (document, options) in changes.items():
            change = await self._schemas.try_out(
                database, document, candidates=candidates, options=options
            )
            if change.moves:
                raise would_move(change.moves)

    async def delete_schema(
        self, database: str, *, dry_run: bool = False, version: int | None = None
    ) -> dict[str, Any]:
        """Drop a database with its data; returns what was (or would be) dropped.

        `version` is the one that the caller has seen. Raises `NotFound`, `PreconditionFailed`.
        """
        return await self._schemas.remove(database, dry_run=dry_run, version=version)

    async def systems(self) -> list[dict[str, Any]]:
        """Describe all systems: capabilities with their proof, metrics, facts, state."""
        return [self._registry.describe(known) for known in self._registry]

    async def system(self, name: str) -> dict[str, Any]:
        return self._registry.describe(self._registry.get(name))

    async def register(self, registration: SystemRegistration) -> dict[str, Any]:
        """Open, probe, observe, calibrate and store a system; `Conflict` if the name is taken."""
        _check_statements(registration.metrics, registration.declared)
        return self._registry.describe(await self._registry.register(registration))

    async def amend(
        self,
        name: str,
        *,
        metrics: Mapping[str, float | None] | None = None,
        declared: Sequence[str] | None = None,
        use: SystemUse | None = None,
        seen: SeenStatements | None = None,
    ) -> dict[str, Any]:
        """Change the operator's statements about a system, and rescore.

        Other replicas apply them within seconds.

        Args:
            name: Of the system.
            metrics: Stated metrics, in seconds or per second; None withdraws one.
            declared: Capabilities that replace those declared before.
            use: Its use.
            seen: The statements that the change is based on; None: no check.

        Raises:
            Conflict: The current statements differ from `seen`.
            Invalid: There is no such metric or capability.
            NotFound: There is no such system.
        """
        _check_statements(metrics, declared)

        def change(known: KnownSystem) -> KnownSystem:
            if seen is not None:
                check_seen(known, seen)
            return amend_statements(known, metrics, declared, use)

        return await self._reevaluate(await self._registry.amend(name, change))

    async def moves_off(self, name: str) -> list[dict[str, Any]]:
        """List the data on a system, and where placement would put it without that system.

        Raises `NotFound`.
        """
        self._registry.get(name)
        await self._schemas.refresh()
        return await self._evaluation.moves_off(name, without_copies(self._systems))

    async def add_statements(self, statements: Mapping[str, Mapping[str, Any]]) -> None:
        """Add another installation's statements about systems that exist here; local ones win.

        Each has `kind`, `declared` and `metrics`.
        """
        for known in self._registry:
            if known.name in statements:
                await self._registry.add_statements(known.name, statements[known.name])

    async def calibrate(self, name: str) -> dict[str, Any]:
        return await self._reevaluate(await self._registry.examine(name))

    async def unregister(self, name: str) -> None:
        """Remove a system that holds no data; `Conflict` otherwise."""
        await self._registry.forget(name)

    async def advise(self, document: Any) -> dict[str, Any]:
        """Return advice for {"schema", "systems"}; without "systems", for the registered ones."""
        # In a thread: a schema at the limits takes seconds.
        return await asyncio.to_thread(advise, document, self._registry.candidates())

    async def explain(
        self, database: str, class_name: str | None = None, field: str | None = None
    ) -> dict[str, Any]:
        """Return a node's candidates, with metrics, scores and margins; and a class's waits."""
        await self._schemas.refresh()
        node = ".".join(filter(None, (class_name, field))) or ROOT
        explanation = await asyncio.to_thread(self._evaluation.explain, database, node)
        batching = []
        if class_name is not None and field is None:
            batching = self._executor.batching(database, class_name)
        return {"database": database, **explanation, "batching": batching}

    async def summary(self, database: str) -> dict[str, Any]:
        """Return the locations of all nodes and groups, with reasons and scores, in short."""
        await self._schemas.refresh()
        return {"database": database, **await asyncio.to_thread(self._evaluation.summary, database)}

    async def what_if(self, database: str, document: Any) -> dict[str, Any]:
        """Return the nodes that scores would place elsewhere under other weights, goals or metrics.

        Raises:
            NotFound: There is no such database.
            Invalid, SchemaInvalid: The supposition is wrong, with the location of every mistake.
            Unplaceable: No system would remain for a node.
        """
        await self._schemas.refresh()
        comparison = await asyncio.to_thread(self._evaluation.what_if, database, document)
        return {"database": database, **comparison}

    async def violations(self, database: str | None = None) -> list[dict[str, Any]]:
        """List violation events, newest first."""
        return await self._evaluation.events.newest(database)

    async def proposals(self, database: str | None = None) -> list[dict[str, Any]]:
        """List recorded proposals: node, current, proposed, margin, since."""
        return await self._evaluation.proposals(database)

    async def scaling(self) -> dict[str, Any]:
        """Recommend scaling of the service and of each system, with reasons and figures."""
        return self._advisor.advise()

    async def readiness(self) -> dict[str, Any]:
        """Ping each system, the catalogue, and the coordination Redis if there is one.

        For each system, list the classes that depend on it.
        """
        registered, shared_pings = list(self._registry), {"catalogue": self._catalogue.ping}
        if self._binding is not None:
            shared_pings["coordination"] = self._binding.renew
        pings = [*map(_error_of, shared_pings.values()), *(self._ping(k.name) for k in registered)]
        errors = await asyncio.gather(*pings)
        shared_errors, system_errors = (
            dict(zip(shared_pings, errors, strict=False)),
            errors[len(shared_pings) :],
        )
        down = [k.name for k, error in zip(registered, system_errors, strict=True) if error]
        return {
            "ready": (self._executor.model.epoch > 0 or shared_errors["catalogue"] is None)
            and (not registered or len(down) < len(registered)),
            "degraded": down + [name for name, error in shared_errors.items() if error],
            **{name: _availability(error) for name, error in shared_errors.items()},
            "systems": {
                k.name: {**_availability(error), "serves": _users(self._executor.model, k.name)}
                for k, error in zip(registered, system_errors, strict=True)
            },
        }

    async def _reevaluate(self, known: KnownSystem) -> dict[str, Any]:
        await self._evaluation.evaluate()
        return self._registry.describe(known)

    async def _ping(self, name: str) -> str | None:
        guarded = self._systems.find(name)
        if guarded is None:
            return "not connected"
        return await _error_of(lambda: guarded.guarded(guarded.store.ping))


async def _error_of(ping: Callable[[], Awaitable[None]]) -> str | None:
    """Return why a ping fails; None if it succeeds."""
    try:
        async with asyncio.timeout(PING_S):
            await ping()
    except (MediatorError, StoreError, TimeoutError) as error:
        return str(error) or "it did not answer in time"
    return None


def _availability(error: str | None) -> dict[str, Any]:
    return {"ok": True} if error is None else {"ok": False, "detail": error}


def _users(model: RoutingModel, system: str) -> list[str]:
    """Return the classes that have data on a system, as database.class."""
    return [
        f"{name}.{class_name}"
        for name, database in sorted(model.databases.items())
        for class_name, route in sorted(database.classes.items())
        if system in route.systems
    ]


def _check_statements(
    metrics: Mapping[str, float | None] | None, declared: Sequence[str] | None
) -> None:
    locations = [
        Location(f"/metrics/{name}", f"is none of {', '.join(Metric)}{did_you_mean(name, Metric)}")
        for name in metrics or ()
        if name not in list(Metric)
    ] + [
        Location(
            f"/declared/{index}",
            f"is none of {', '.join(Capability)}{did_you_mean(name, Capability)}",
        )
        for index, name in enumerate(declared or ())
        if name not in list(Capability)
    ]
    if locations:
        raise Invalid("The statements about the system are malformed.", locations=locations)
