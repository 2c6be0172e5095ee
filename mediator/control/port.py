"""What the mediator offers to operators and applications: schemas, systems, placements."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mediator.stores.port import SystemConfig

__all__ = ["BeforeChange", "ControlPlane", "SchemaChange", "SystemRegistration"]


@dataclass(frozen=True, slots=True)
class SystemRegistration:
    """A system as the operator registers it.

    Attributes:
        config: How to reach it.
        declared: Capabilities that cannot be probed or observed, by the operator's word.
        metrics: Metrics by the operator's word; they replace measured ones until removed.
    """

    config: SystemConfig
    declared: tuple[str, ...] = ()
    metrics: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What setting a schema did, or would do (dry run).

    Attributes:
        database: Name of the database.
        version: Version of the schema after the change.
        epoch: Epoch of the routing model after the change.
        document: The schema as stored: complete, with defaults spelled out.
        placements: For each node (``class`` or ``class.field``): system, bound, scores, why.
        moves: What would have to move: node, from, to, objects. Not empty only in a dry run.
        notes: Things worth knowing, e.g. goals and utilities mixed on one field.
    """

    database: str
    version: int
    epoch: int
    document: dict[str, Any]
    placements: dict[str, Any]
    moves: tuple[dict[str, Any], ...] = ()
    notes: tuple[str, ...] = ()


BeforeChange: TypeAlias = Callable[[Iterable[str]], Awaitable[None]]
"""Called with the names of the classes that a schema is about to have."""


class ControlPlane(Protocol):
    """Schemas, systems, placements. Every method raises `MediatorError` and nothing else."""

    async def databases(self) -> list[dict[str, Any]]:
        """List databases: name, mode, version, classes."""

    async def schema(self, database: str) -> SchemaChange:
        """Return the stored schema with its placements."""

    async def set_schema(
        self,
        database: str,
        document: Any,
        *,
        dry_run: bool = False,
        version: int | None = None,
        before: BeforeChange | None = None,
    ) -> SchemaChange:
        """Validate, place, prepare the stores, store, and put a new routing model in force.

        Args:
            database: Name of the database.
            document: The schema as JSON.
            dry_run: Only say what would happen.
            version: The version the caller has seen; 0: none yet.
            before: Called before anything is changed, once the schema is found to be in order.

        Raises:
            SchemaInvalid: With the place of every mistake.
            Unplaceable: No system serves a node; the routing model stays as it was.
            DataWouldMove: Existing data would move; `extra["plan"]`.
            PreconditionFailed: The stored version is another.
        """

    async def place(
        self, documents: Mapping[str, Any], statements: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Return if all of these schemas could be set, by the names of their databases.

        Args:
            documents: The schemas as JSON.
            statements: What an operator would have said of systems before (`add_statements`).

        Raises:
            SchemaInvalid: With the place of every mistake.
            Unplaceable: No system serves a node.
            DataWouldMove: Existing data would move; `extra["plan"]`.
        """

    async def delete_schema(self, database: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Drop a database with its data; returns what was (or would be) dropped."""

    async def systems(self) -> list[dict[str, Any]]:
        """Describe all systems: capabilities with their proof, metrics, facts, state."""

    async def system(self, name: str) -> dict[str, Any]:
        """Describe one system."""

    async def register(self, registration: SystemRegistration) -> dict[str, Any]:
        """Open, probe, observe, calibrate and store a system; `Conflict` if the name is taken."""

    async def amend(
        self,
        name: str,
        *,
        metrics: Mapping[str, float | None] | None = None,
        declared: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Change what the operator says of a system (None removes a metric), and rescore."""

    async def add_statements(self, statements: Mapping[str, Mapping[str, Any]]) -> None:
        """Add to what operators say of systems here what they said of them elsewhere.

        Args:
            statements: `kind`, `declared` and `metrics` of systems, by name; those that are not
                here are left out, and what is stated here holds.
        """

    async def calibrate(self, name: str) -> dict[str, Any]:
        """Probe and calibrate a system anew."""

    async def unregister(self, name: str) -> None:
        """Forget a system that holds nothing; `Conflict` otherwise."""

    async def advise(self, document: Any) -> dict[str, Any]:
        """Answer advice for {"schema", "systems"}: pure; without "systems" the registered ones."""

    async def explain(
        self, database: str, class_name: str | None = None, field: str | None = None
    ) -> dict[str, Any]:
        """Say where a node is placed and why: candidates, metrics, scores, margins, thresholds."""

    async def summary(self, database: str) -> dict[str, Any]:
        """Return where all nodes and groups are, why, and with which scores, in short."""

    async def what_if(self, database: str, document: Any) -> dict[str, Any]:
        """Say what scores would place elsewhere under other weights, goals or metrics: pure.

        Raises:
            NotFound: There is no such database.
            Invalid, SchemaInvalid: The supposition is wrong, with the place of every mistake.
            Unplaceable: No system would be left for a node.
        """

    async def violations(self, database: str | None = None) -> list[dict[str, Any]]:
        """List violation events, newest first."""

    async def proposals(self, database: str | None = None) -> list[dict[str, Any]]:
        """List recorded proposals: node, current, proposed, margin, since."""

    async def scaling(self) -> dict[str, Any]:
        """Recommend more or less of the service and of each system, with reasons and figures."""

    async def readiness(self) -> dict[str, Any]:
        """Say for each system and the catalogue whether it answers, and what depends on it."""
