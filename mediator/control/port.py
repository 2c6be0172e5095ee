"""What operators and applications give the control plane, and what it returns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, TypeAlias

from mediator.catalogue.schema_revisions import SchemaHistory
from mediator.schema.copies import Copy
from mediator.schema.overrides import Override
from mediator.stores.port import SystemConfig

__all__ = [
    "CAREFUL",
    "AfterChange",
    "BeforeChange",
    "ChangeOptions",
    "SchemaChange",
    "SeenStatements",
    "SystemRegistration",
    "SystemUse",
]


class SystemUse(StrEnum):
    """What a system is used for.

    FULL: for all that is placed there. DRAINING: for what is there; nothing else is placed there.
    SUSPENDED: for nothing; calls to it fail at once, as if it did not answer.
    """

    FULL = "full"
    DRAINING = "draining"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class SystemRegistration:
    """A system as the operator registers it.

    Attributes:
        config: How to reach it.
        declared: Capabilities that cannot be probed or observed, as the operator states them.
        metrics: Metrics that the operator states; they replace measured ones until removed.
        use: What the operator lets it be used for.
    """

    config: SystemConfig
    declared: tuple[str, ...] = ()
    metrics: Mapping[str, float] | None = None
    use: SystemUse = SystemUse.FULL


@dataclass(frozen=True, slots=True)
class SeenStatements:
    """What was shown of a system before it is changed; None: it does not matter what it is.

    Attributes:
        declared: The capabilities that were declared, in any order.
        use: What it was used for.
    """

    declared: frozenset[str] | None = None
    use: SystemUse | None = None


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """What a schema change may do to objects that are there.

    Attributes:
        unchecked: Whether constraints that are tightened are put in force without checking them.
        backfill: Whether they get the defaults of required fields, after the change.
        drop: What leaves the schema with all that it holds: classes (``class``) with their objects,
            fields (``class.field``) with their values.
        rename: New names of fields, by class and former name.
        move: Copies that are done: their source is dropped, as the target has all its values.
        overrides: What operators override of the placement, by node; None ends an override.
        history: What a database has had before that is created; one that is there has its own.
        restored: The version whose classes and fields a backup brings back, so that its clients
            find them again; None: those of the present version go on.
    """

    unchecked: bool = False
    backfill: bool = False
    drop: frozenset[str] = frozenset()
    rename: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    move: tuple[Copy, ...] = ()
    overrides: Mapping[str, Override | None] = field(default_factory=dict)
    history: SchemaHistory | None = None
    restored: int | None = None


CAREFUL: Final = ChangeOptions()
"""Nothing is done to them, and none may break the schema."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What setting a schema did, or would do (dry run).

    Attributes:
        version: Of the schema, after the change.
        epoch: Of the routing model, after the change.
        document: The schema as stored: complete, with defaults spelled out.
        placements: For each node (``class`` or ``class.field``): system, bound, scores, why.
        moves: What would have to move: node, from, to, objects. Not empty only in a dry run.
        violations: Constraints that existing objects break (`CheckReport`). A dry run lists those
            that the change would be refused for; the change itself, those that objects break which
            were written before all replicas had adopted it.
        overrides: Those in force, by node: system, reason, until.
        notes: Things worth knowing, e.g. goals and utilities mixed on one field.
    """

    database: str
    version: int
    epoch: int
    document: dict[str, Any]
    placements: dict[str, Any]
    moves: tuple[dict[str, Any], ...] = ()
    violations: tuple[dict[str, Any], ...] = ()
    overrides: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


BeforeChange: TypeAlias = Callable[[Iterable[str]], Awaitable[None]]
"""Called with the names of the classes that a schema is about to have."""

AfterChange: TypeAlias = Callable[[Iterable[str]], Awaitable[None]]
"""Called with the names of the classes that a schema has, as soon as it is in force."""
