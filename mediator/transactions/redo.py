"""Redo records: the steps of a committed write, as JSON in the log, and in intents of blind writes.

They use the stored names of fields, so they stay valid if a field is renamed before they are
applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import orjson

from mediator.model.operations import Outcome
from mediator.model.operators import Operator, OperatorCall
from mediator.routing.fragments import Steps
from mediator.routing.model import ClassRoute
from mediator.schema.tagged import dump, load
from mediator.schema.unique import constraint_name
from mediator.stores.port import RecordKey, Write, WriteKind
from mediator.stores.stored_names import names_of, stored_fragment
from mediator.transactions.log import State, TransactionEntry
from mediator.transactions.preparing import PreparedOperation
from mediator.transactions.targets import LockTarget

__all__ = [
    "dump_operation",
    "dump_outcome",
    "load_operation",
    "load_outcome",
    "redo_of_intent",
    "staged_entry",
    "written_records",
]

_NOTHING: Final = "NOTHING"
"""Kind of an update of no group, which is only recorded; older versions do not know this kind.

On MongoDB they would apply such an update as an empty document. So they only remove the intent.
"""


def redo_of_intent(entry: TransactionEntry) -> str:
    """Return the redo record that an intent carries: of blind writes only, else empty."""
    return orjson.dumps(entry.redo).decode() if entry.state is State.STAGED else ""


def staged_entry(database: str, intent: str, redo_text: str) -> TransactionEntry:
    """Rebuild the entry of a blind write that the log lost, from the redo record in its intent."""
    redo = orjson.loads(redo_text)
    records = [[document["class"], document["id"]] for document in redo]
    return TransactionEntry(intent, database, records, state=State.STAGED, redo=redo)


def dump_operation(operation: PreparedOperation) -> dict[str, Any]:
    header: dict[str, Any] = {
        "class": operation.target.route.schema.name,
        "id": operation.target.id,
    }
    if operation.steps is None:
        assert operation.outcome is not None
        return {**header, "outcome": dump_outcome(operation.outcome)}
    steps = [_dump_write(write) for write in operation.steps.all]
    return {**header, "operation": operation.steps.first.operation, "steps": steps}


def load_operation(
    route: ClassRoute | None, document: Mapping[str, Any], intent: str
) -> PreparedOperation | Outcome:
    """Return the operation that `dump_operation` wrote, on the current route of its class.

    Returns:
        Only the outcome if the class no longer exists, and nothing can be applied.
    """
    outcome = Outcome(document["id"], None, {}, replayed=True)
    if "outcome" in document:
        outcome = load_outcome(document["outcome"])
    if route is None:
        return outcome
    target = LockTarget(route, document["id"])
    with suppress(KeyError):  # it has no steps, or a fragment is no longer part of the class
        steps = (_load_write(route, document, step, intent) for step in document["steps"])
        return PreparedOperation(target, Steps.of(steps))
    return PreparedOperation(target, None, outcome)


def written_records(route: ClassRoute, document: Mapping[str, Any]) -> list[RecordKey]:
    """Return the records that an operation writes, of fragments that its class still has.

    A fragment added to the class since has no intent of it.
    """
    systems = {step["system"] for step in document["steps"]}
    return [(f, document["id"]) for f in route.fragments if f.system in systems]


def _changes_nothing(write: Write) -> bool:
    return write.kind is WriteKind.UPDATE and not write.groups


def _dump_write(write: Write) -> dict[str, Any]:
    if write.fragment.stored_names:
        write = names_of(write.fragment).write(write)
    return {
        "system": write.fragment.system,
        "kind": _NOTHING if _changes_nothing(write) else write.kind.name,
        "groups": list(write.groups),
        "values": dump(write.values),
        "unset": list(write.unset),
        "operators": [
            {"field": c.field, "operator": c.operator.value, "argument": dump(c.argument)}
            for c in write.operators
        ],
        "creation_version": write.creation_version,
        "remember": write.remember,
        "returning": None if write.returning is None else list(write.returning),
        "claims": dict(write.claims),
    }


def _load_write(
    route: ClassRoute, document: Mapping[str, Any], step: Mapping[str, Any], intent: str
) -> Write:
    returning = step["returning"]
    values = load(step["values"])
    assert isinstance(values, dict)
    fragment = {f.system: f for f in route.fragments}[step["system"]]
    # A constraint may have left the schema since; older versions of the service wrote no claims.
    claims, unique = step.get("claims", {}), stored_fragment(fragment).unique
    constraints = set(map(constraint_name, unique))
    write = Write(
        fragment=fragment,
        id=document["id"],
        kind=WriteKind.UPDATE if step["kind"] == _NOTHING else WriteKind[step["kind"]],
        operation=document["operation"],
        groups=tuple(step["groups"]),
        values=values,
        unset=tuple(step["unset"]),
        operators=tuple(
            OperatorCall(o["field"], Operator(o["operator"]), load(o["argument"]))
            for o in step["operators"]
        ),
        creation_version=step["creation_version"],
        remember=step["remember"],
        returning=None if returning is None else tuple(returning),
        intent=intent,
        claims={name: claim for name, claim in claims.items() if name in constraints},
    )
    return names_of(fragment).public_write(write)


def dump_outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "id": outcome.id,
        "values": None if outcome.values is None else dump(outcome.values),
        "versions": dict(outcome.versions),
        "created": outcome.created,
        "schema_version": outcome.schema_version,
        "systems": list(outcome.systems),
    }


def load_outcome(document: Mapping[str, Any]) -> Outcome:
    """Return the outcome that `dump_outcome` wrote."""
    values = None if document["values"] is None else load(document["values"])
    assert values is None or isinstance(values, dict)
    return Outcome(
        document["id"],
        values,
        dict(sorted(document["versions"].items())),  # JSONB does not keep the order of keys
        document["created"],
        replayed=True,
        schema_version=document["schema_version"],
        systems=tuple(document["systems"]),
    )
