"""Applying what is committed: repeated by whoever comes, until all of it is done.

Every step needs the transaction's mark, and takes it along; so it happens once, however often and
however late it is sent. The store remembers its result with it, for whoever repeats it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from mediator.errors import MediatorError
from mediator.operations.calls import StoreCalls
from mediator.operations.marks import Marker
from mediator.operations.merge import merge_results
from mediator.operations.model import Outcome
from mediator.operations.plan import Steps, with_birth
from mediator.operations.redo import dump_write, load_write
from mediator.placement.routing import ClassRoute
from mediator.schema.tagged import dump, load
from mediator.stores.port import Fragment, Status, Write, WriteKind, WriteResult
from mediator.transactions.places import Target, gathered, unlock_all
from mediator.transactions.preparing import Work

__all__ = ["Applier", "dump_outcome", "dump_work", "load_outcome", "load_work"]


class Applier:
    """Applies the work of committed transactions.

    Args:
        calls: Sends store calls.
        marker: Takes marks away.
        remove_copy: Removes the primary's copy of an object that was deleted.
    """

    def __init__(
        self,
        calls: StoreCalls,
        marker: Marker,
        remove_copy: Callable[[ClassRoute, str, int], Awaitable[None]],
    ) -> None:
        self._calls = calls
        self._marker = marker
        self._remove_copy = remove_copy

    async def apply(
        self, works: Sequence[Work], targets: Sequence[Target], mark: str
    ) -> list[Outcome]:
        """Apply all of it and take the marks away; returns what came of each operation.

        Raises:
            Unavailable: A system does not answer; what is left is to be applied later.
        """
        steps = [(work, work.steps) for work in works if work.steps is not None]
        firsts = await self._send([s.first for _, s in steps])
        births = await gathered(
            self._birth(s.first, result) for (_, s), result in zip(steps, firsts, strict=True)
        )
        rest = [
            with_birth(write, WriteResult(Status.APPLIED, birth=birth))
            for (_, s), birth in zip(steps, births, strict=True)
            for write in s.rest
        ]
        rests = await self._send(rest)
        others = iter(rests)
        results = [
            [first, *(next(others) for _ in s.rest)]
            for (_, s), first in zip(steps, firsts, strict=True)
        ]
        for (work, s), birth in zip(steps, births, strict=True):
            if s.first.kind is WriteKind.DELETE and work.route is not None and work.route.copy:
                await self._remove_copy(work.route, s.first.id, birth)
        written = _written([s.first for _, s in steps], firsts) | _written(rest, rests)
        await unlock_all(self._marker, targets, mark, written)
        found = iter(zip(steps, results, strict=True))
        return [_outcome(work, found) for work in works]

    async def _send(self, writes: Sequence[Write]) -> list[WriteResult]:
        done = []
        for result in await self._calls.write_each(writes) if writes else ():
            if isinstance(result, MediatorError):
                raise result
            done.append(result)
        return done

    async def _birth(self, write: Write, result: WriteResult) -> int:
        """Return the birth that the other parts of an object need."""
        if result.status is not Status.LOCKED:
            return result.birth
        # It was applied before, and its store has forgotten the result by now.
        standing = await self._marker.standing(write.fragment, write.id)
        return standing.birth or max(standing.versions.values(), default=0)


def _written(writes: Sequence[Write], results: Sequence[WriteResult]) -> set[tuple[Fragment, str]]:
    """Return the records whose marks have gone with a write."""
    return {
        (write.fragment, write.id)
        for write, result in zip(writes, results, strict=True)
        if result.status in (Status.APPLIED, Status.REPLAYED)
    }


def _outcome(work: Work, found: Any) -> Outcome:
    if work.steps is None:
        assert work.outcome is not None
        return work.outcome
    assert work.route is not None
    (_, steps), results = next(found)
    return merge_results(work.route, steps, results)


def dump_work(work: Work, class_name: str) -> dict[str, Any]:
    """Put work into JSON."""
    if work.steps is None:
        assert work.outcome is not None
        return {"class": class_name, "outcome": dump_outcome(work.outcome)}
    return {
        "class": class_name,
        "id": work.steps.first.id,
        "operation": work.steps.first.operation,
        "steps": [dump_write(write) for write in work.steps.all],
    }


def load_work(route: ClassRoute | None, told: Mapping[str, Any], mark: str) -> Work:
    """Read work back; what is no longer there has nothing to be applied to, and still an answer."""
    if "outcome" in told:
        return Work(route, None, load_outcome(told["outcome"]))
    with suppress(KeyError):  # a place is no longer part of the class
        if route is not None:
            return Work(route, _steps(route, told, mark))
    return Work(None, None, Outcome(told["id"], None, {}, replayed=True))


def _steps(route: ClassRoute, told: Mapping[str, Any], mark: str) -> Steps:
    first, *rest = (
        replace(load_write(route, told["id"], told["operation"], step), mark=mark)
        for step in told["steps"]
    )
    return Steps(first, tuple(rest))


def dump_outcome(outcome: Outcome) -> dict[str, Any]:
    """Put an answer into JSON."""
    return {
        "id": outcome.id,
        "values": None if outcome.values is None else dump(outcome.values),
        "versions": dict(outcome.versions),
        "created": outcome.created,
        "schema_version": outcome.schema_version,
        "systems": list(outcome.systems),
    }


def load_outcome(told: Mapping[str, Any]) -> Outcome:
    """Read an answer back."""
    values = None if told["values"] is None else load(told["values"])
    assert values is None or isinstance(values, dict)
    return Outcome(
        told["id"],
        values,
        dict(sorted(told["versions"].items())),  # PostgreSQL's JSON has an order of its own
        told["created"],
        replayed=True,
        schema_version=told["schema_version"],
        systems=tuple(told["systems"]),
    )
