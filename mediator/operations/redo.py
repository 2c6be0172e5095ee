"""Redo records: what makes a write over several systems happen as a whole.

Order of events, with what a crash in between leaves behind:

1. the record is added to the log, under a lease;        crash: recovery finds nothing begun
2. the first step is applied, with all conditions;       crash: recovery finds it remembered
3. the other steps are applied, without conditions;      crash: recovery repeats them (REPLAYED)
4. the record is removed; then the write is acknowledged.

If the first step is refused, the record is removed and nothing has happened. Every step carries the
operation id and is remembered by its store, so a repeated one has no second effect. Recovery takes
records only after their lease, which is longer than the deadlines of all steps together, so no live
writer is still at work on them. It finishes what was begun and drops what was not: a write that was
never acknowledged does not appear long after its client has gone.

There is at most one record for an object. So writes over several systems on one object happen one
after the other, in the same order on each of them: a delete does not overtake a put between its
steps, nor do two puts end as a mixture. Writes that touch one system only need no record, and may
come between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mediator.operations.operators import Operator, OperatorCall
from mediator.operations.plan import Steps
from mediator.placement.routing import ClassRoute
from mediator.schema.tagged import dump, load
from mediator.stores.port import Write, WriteKind

__all__ = ["RedoLog", "RedoRecord", "dump_write", "load_write", "record_of", "steps_of"]


@dataclass(frozen=True, slots=True)
class RedoRecord:
    """A write over several systems, as it is kept in the catalogue.

    Attributes:
        operation: Its unique id.
        database: Name of the database.
        class_name: Name of the class.
        id: The object's id.
        steps: The writes in order, as JSON.
        birth: Set once the first step is known to have been applied: its result's birth.
    """

    operation: str
    database: str
    class_name: str
    id: str
    steps: list[dict[str, Any]]
    birth: int | None = None


class RedoLog(Protocol):
    """Where redo records are kept, durably."""

    async def add(self, record: RedoRecord, lease_s: float) -> bool:
        """Add a record that nobody else may touch for `lease_s` seconds.

        Returns False, and adds nothing, while there is a record for the object.
        """

    async def decide(self, operation: str, birth: int) -> None:
        """Note that the first step has been applied, and let recovery have the record at once."""

    async def postpone(self, operation: str, seconds: float) -> None:
        """Let recovery have a record after `seconds`."""

    async def remove(self, operation: str) -> None:
        """Remove a record; no error if it is gone."""

    async def find(self, operation: str) -> RedoRecord | None:
        """Return the record of an operation, if it is still there."""

    async def unsettled(self, database: str, class_name: str, ids: Sequence[str]) -> set[str]:
        """Return those of the objects for which there is a record."""

    async def take(self, limit: int, lease_s: float) -> list[RedoRecord]:
        """Take over up to `limit` records whose lease has passed, under a new lease."""


def record_of(route: ClassRoute, database: str, steps: Steps) -> RedoRecord:
    """Put the steps of a write into the form that the catalogue keeps."""
    return RedoRecord(
        operation=steps.first.operation,
        database=database,
        class_name=route.schema.name,
        id=steps.first.id,
        steps=[dump_write(write) for write in steps.all],
    )


def steps_of(route: ClassRoute, record: RedoRecord) -> Steps:
    """Read a redo record back, against the present route of its class.

    Raises:
        KeyError: A system or field of the record is no longer part of the class.
    """
    first, *rest = (load_write(route, record.id, record.operation, s) for s in record.steps)
    return Steps(first, tuple(rest))


def dump_write(write: Write) -> dict[str, Any]:
    """Put one step into JSON."""
    return {
        "system": write.fragment.system,
        "kind": write.kind.name,
        "groups": list(write.groups),
        "values": dump(write.values),
        "unset": list(write.unset),
        "operators": [
            {"field": c.field, "operator": c.operator.value, "argument": dump(c.argument)}
            for c in write.operators
        ],
        "expect": dict(write.expect),
        "require_present": write.require_present,
        "birth": write.birth,
        "remember": write.remember,
        "returning": None if write.returning is None else list(write.returning),
    }


def load_write(route: ClassRoute, id_: str, operation: str, step: Mapping[str, Any]) -> Write:
    """Read one step back; raises `KeyError` if its place is no longer part of the class."""
    fragment = {f.system: f for f in route.fragments}[step["system"]]
    returning = step["returning"]
    values = load(step["values"])
    assert isinstance(values, dict)
    return Write(
        fragment=fragment,
        id=id_,
        kind=WriteKind[step["kind"]],
        operation=operation,
        groups=tuple(step["groups"]),
        values=values,
        unset=tuple(step["unset"]),
        operators=tuple(
            OperatorCall(o["field"], Operator(o["operator"]), load(o["argument"]))
            for o in step["operators"]
        ),
        expect=step["expect"],
        require_present=step["require_present"],
        birth=step.get("birth"),
        remember=step["remember"],
        returning=None if returning is None else tuple(returning),
    )
