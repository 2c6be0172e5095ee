"""Parts of an object on systems beside its anchor: parts that are not there, or not there yet.

A group that is added to a class on a further system has no part of the objects that were there
before. To a reader such a part looks like one that a write over several systems has not reached
yet, so the log of those writes is asked; a writer adds the part, of the birth that the anchor has.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from mediator.errors import Unavailable
from mediator.operations.apply import Refused, apply_operator
from mediator.operations.calls import StoreCalls
from mediator.operations.merge import refusal_of
from mediator.operations.model import Outcome
from mediator.placement.routing import ClassRoute
from mediator.schema.tree import MISSING
from mediator.stores.port import Read, Record, Status, Write, WriteKind, WriteResult

__all__ = ["add_part", "check_operators", "lacks_part", "look_again", "supply_part"]


def lacks_part(route: ClassRoute, write: Write, result: WriteResult) -> bool:
    """Whether an update found nothing in a place that does not say whether the object exists."""
    return (
        result.status is Status.MISSING
        and write.kind is WriteKind.UPDATE
        and write.fragment is not route.anchor
        and not write.expect
    )


def add_part(write: Write, birth: int) -> Write:
    """Return the write that adds the empty part which an update needs."""
    fragment = write.fragment
    operation = f"{write.operation}:part"
    groups = tuple(fragment.groups)
    return Write(fragment, write.id, WriteKind.CREATE, operation, groups, birth=birth, remember="")


async def supply_part(calls: StoreCalls, route: ClassRoute, write: Write) -> bool:
    """Add the part that an update needs; False if the object is not there.

    A delete may come between: then its own look at this system has found nothing to delete, and
    what was added is taken away again.
    """
    anchor = await _anchor(calls, route, write.id)
    if anchor is None:
        return False
    added = add_part(write, anchor.birth)
    await calls.write(added)
    now = await _anchor(calls, route, write.id)
    if now is not None and now.birth == anchor.birth:
        return True
    undone = replace(added, kind=WriteKind.DELETE, operation=f"{write.operation}:undo")
    await calls.write(undone)
    return False


async def check_operators(calls: StoreCalls, writes: Sequence[Write]) -> None:
    """Raise `OperatorRefused` if a store would refuse an operator, as far as reading can tell."""
    critical = [write for write in writes if write.operators]
    if not critical:
        return
    reads = [Read(w.fragment, w.id, tuple([c.field for c in w.operators])) for w in critical]
    for write, record in zip(critical, await calls.read(reads), strict=True):
        _try_operators(write, record)


async def look_again(
    outcomes: Sequence[Outcome | None],
    unsettled: Callable[[Sequence[str]], Awaitable[set[str]]],
    read: Callable[[Sequence[str]], Awaitable[Sequence[Outcome | None]]],
) -> list[Outcome | None]:
    """Tell objects whose parts are still being written from those that have no such part.

    Args:
        outcomes: What was read.
        unsettled: Tells which of some objects a write over several systems is under way on.
        read: Reads objects again: a write that is settled by now may not have been when the parts
            were read.
    """
    doubtful = [outcome.id for outcome in outcomes if outcome is not None and outcome.partial]
    if not doubtful:
        return list(outcomes)
    try:
        under_way = await unsettled(doubtful)
    except Unavailable:
        return list(outcomes)
    again = dict(zip(doubtful, await read(doubtful), strict=True))
    for id_, outcome in again.items():
        if outcome is not None and id_ not in under_way:
            again[id_] = replace(outcome, partial=())
    return [again.get(o.id, o) if o is not None else None for o in outcomes]


async def _anchor(calls: StoreCalls, route: ClassRoute, id_: str) -> Record | None:
    [record] = await calls.read([Read(route.anchor, id_, ())])
    return record


def _try_operators(write: Write, record: Record | None) -> None:
    now = datetime.now(UTC)
    for call in write.operators:
        value = record.values.get(call.field, MISSING) if record else MISSING
        try:
            apply_operator(write.fragment.fields[call.field], value, call, now)
        except Refused as refused:
            raise refusal_of(refused.failure) from refused
