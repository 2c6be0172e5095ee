"""Inputs of the control plane from operators and applications, and its results."""

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
    """The use of a system.

    FULL: no restriction. DRAINING: for data that is there, but nothing else is placed there.
    SUSPENDED: no use; calls to it fail at once, as if it did not answer.
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
        use: The use that the operator allows.
    """

    config: SystemConfig
    declared: tuple[str, ...] = ()
    metrics: Mapping[str, float] | None = None
    use: SystemUse = SystemUse.FULL


@dataclass(frozen=True, slots=True)
class SeenStatements:
    """Statements about a system that were shown before it is changed; None: not checked.

    Attributes:
        declared: The declared capabilities, in any order.
        use: Its use.
    """

    declared: frozenset[str] | None = None
    use: SystemUse | None = None


@dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Permitted effects of a schema change on existing objects.

    Attributes:
        unchecked: Whether tightened constraints are put in force without checking objects.
        backfill: Whether objects get the defaults of required fields, after the change.
        drop: Nodes that leave the schema with their data: classes (``class``) with their objects,
            fields (``class.field``) with their values.
        rename: New names of fields, by class and former name.
        move: Complete copies: their source is dropped, as the target has all its values.
        overrides: Operators' overrides of the placement, by node; None ends an override.
        history: The former history of a database that is created; an existing one keeps its own.
        restored: The version whose classes and fields a backup restores, so that its clients find
            them again; None: those of the present version continue.
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
"""Objects are unchanged, and none may break the schema."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The result of setting a schema, or of a dry run.

    Attributes:
        version: Of the schema, after the change.
        epoch: Of the routing model, after the change.
        document: The schema as stored: complete, with explicit defaults.
        placements: For each node (``class`` or ``class.field``): system, bound, scores, why.
        moves: Data that would have to move: node, from, to, objects. Empty except in a dry run.
        violations: Constraints that existing objects break (`CheckReport`). A dry run lists those
            for which the change would be refused; the change lists those broken by objects that
            were written before all replicas had adopted it.
        overrides: Those in force, by node: system, reason, until.
        notes: Remarks, such as goals and utilities mixed on one field.
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
"""Called with the names of the classes of a schema, as soon as it is in force."""
