"""Applying committed writes: idempotent, and repeated by any replica until all of it is done.

Every step needs the write's intent and removes it; so it takes effect once, however often and
however late it is sent. Where its result is needed even after another replica has applied it, the
store remembers it; else a replica that comes second does not know the versions.

A committed write must happen. What its operators make was checked against the bounds of fields
before it was committed, and the intent has kept its records as they were. So bounds that a later
schema has set, by which a store refuses a step, are no reason to leave it out: it is sent again
without them. A step that a store refuses for a reason of its own stays to be applied, and is
reported (`StepRefused`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, TypeAlias

from mediator.base.concurrency import both, concurrently
from mediator.base.errors import MediatorError, Unavailable
from mediator.model.operations import Outcome
from mediator.operations.calls import StoreCalls
from mediator.operations.intents import IntentStore
from mediator.operations.merge import merge_results
from mediator.routing.fragments import Steps
from mediator.routing.model import ClassRoute
from mediator.stores.port import Fragment, RecordKey, Status, Write, WriteKind, WriteResult
from mediator.stores.systems import is_refusal
from mediator.transactions.preparing import PreparedOperation

__all__ = ["Answer", "Applier", "StepRefused"]

Answer: TypeAlias = Outcome | MediatorError
"""The outcome of one operation, or why not all of it is applied yet."""

_RELEASED: Final = (Status.APPLIED, Status.LOCKED)
"""After these the write's intent is no longer on the record."""

_REFUSED: Final = (Status.REFUSED, Status.TAKEN, Status.TOO_LARGE)
"""With these nothing of a step has happened, and the intent stays on the record."""

_FRAGMENTS: Final = 256
"""Fragments that are kept without bounds: of classes in which such writes are applied."""


class StepRefused(Unavailable):
    """A store does not apply a step of a committed write, and nothing that is known explains it."""


@dataclass(slots=True)
class _Progress:
    """An operation that is being applied, and the results of its steps so far."""

    operation: PreparedOperation
    steps: Steps
    results: dict[int, WriteResult] = field(default_factory=dict)
    error: MediatorError | None = None

    def due(self) -> list[tuple[int, Write]]:
        """Return the steps that can be sent now: the first, where the others need its result."""
        if not self.results and _creates(self.steps):
            return [(0, self.steps.first)]
        return [(i, write) for i, write in enumerate(self.steps.all) if i not in self.results]

    def record(self, index: int, result: WriteResult | MediatorError) -> None:
        if is_refusal(result):
            self.error = _refusal(self.steps.all[index], result.__cause__)
        elif isinstance(result, MediatorError):
            self.error = self.error or result
        elif result.status in _REFUSED:
            reason = result.failure or result.taken or result.status.name
            self.error = _refusal(self.steps.all[index], reason)
        else:
            self.results[index] = result


@dataclass(eq=False)
class Applier:
    """Applies committed writes."""

    _calls: StoreCalls
    _intents: IntentStore
    _remove_copy: Callable[[ClassRoute, str, int], Awaitable[None]]

    async def apply(self, prepared: Sequence[PreparedOperation], intent: str) -> list[Answer]:
        """Apply all operations and remove the intents; returns the answer to each."""
        applied = [
            _Progress(operation, operation.steps)
            for operation in prepared
            if operation.steps is not None
        ]
        written = {(w.fragment, w.id) for one in applied for w in one.steps.all}
        others = [
            key for operation in prepared for key in operation.target.keys if key not in written
        ]
        error = None
        if others:  # the intent leaves the other records while the steps are sent
            _, error = await both(self._steps(applied), self._release(others, intent))
        else:
            await self._steps(applied)
        error = await self._release(_unreleased(applied), intent) or error
        await concurrently(self._forget_copy(one) for one in applied if _deletes_copied(one))
        answers = iter([_answer(one, error) for one in applied])
        return [operation.outcome or next(answers) for operation in prepared]

    async def _steps(self, applied: Sequence[_Progress]) -> None:
        await self._step(applied)
        # Where an object is created, its other fragments need the creation version of the anchor.
        if following := [one for one in applied if one.error is None and one.due()]:
            for one in following:
                await self._bind(one)
            await self._step(following)

    async def _step(self, applied: Sequence[_Progress]) -> None:
        """Send the steps that are due, with one round trip for each system."""
        due = [(one, i, write) for one in applied for i, write in one.due()]
        results = await self._write_each([write for _, _, write in due])
        for (one, i, _), result in zip(due, results, strict=True):
            one.record(i, result)

    async def _write_each(self, writes: Sequence[Write]) -> list[WriteResult | MediatorError]:
        """Send steps; those that bounds of today forbid are sent again without any.

        A store that refuses one of several does not say which: so each is sent again alone.
        """
        results = await self._calls.write_each(writes)
        refused = [
            n
            for n, result in enumerate(results)
            if isinstance(result, WriteResult) and result.status is Status.REFUSED
        ]
        if refused:
            again = await self._calls.write_each([_unbounded(writes[n]) for n in refused])
            for n, result in zip(refused, again, strict=True):
                results[n] = result
        for n, write in enumerate(writes if len(writes) > 1 else ()):
            if is_refusal(results[n]):
                [results[n]] = await self._write_each([write])
        return results

    async def _bind(self, one: _Progress) -> None:
        """Bind the following steps to the generation that the first one has created."""
        creation_version = await self._creation_version(one.steps.first, one.results[0])
        rest = tuple(
            w.with_intent(w.intent, creation_version=creation_version, remember=w.remember)
            for w in one.steps.rest
        )
        one.steps = Steps(one.steps.first, rest)

    async def _creation_version(self, write: Write, result: WriteResult) -> int:
        """Return the creation version that a step has given, or found."""
        if result.status is not Status.LOCKED:
            return result.creation_version
        # Another replica has applied it, and its store does not remember the result.
        [state] = await self._intents.record_states([(write.fragment, write.id)])
        return state.creation_version or max(state.versions.values(), default=0)

    async def _release(self, keys: Sequence[RecordKey], intent: str) -> MediatorError | None:
        """Remove intents where nothing is left to be applied; returns why that failed."""
        try:
            if keys:
                await self._intents.unlock(keys, intent, joint=True)
        except MediatorError as error:
            return error
        return None

    async def _forget_copy(self, one: _Progress) -> None:
        """Remove the view's copy of a deleted object, before the deletion is acknowledged."""
        if one.error is not None:
            return
        first, route = one.steps.first, one.operation.target.route
        try:
            await self._remove_copy(
                route, first.id, await self._creation_version(first, one.results[0])
            )
        except MediatorError as error:
            one.error = error


def _unbounded(write: Write) -> Write:
    return replace(write, fragment=_unbounded_fragment(write.fragment))


@lru_cache(_FRAGMENTS)
def _unbounded_fragment(fragment: Fragment) -> Fragment:
    """Return a fragment whose fields have no bounds that operators can break."""
    fields = {
        name: replace(each, minimum=None, maximum=None, max_length=None)
        for name, each in fragment.fields.items()
    }
    return replace(fragment, fields=fields)


def _refusal(write: Write, reason: object) -> StepRefused:
    system = write.fragment.system
    detail = (
        f"{system} refuses a step of a committed write to {write.fragment.class_name}/{write.id}"
    )
    return StepRefused(f"{detail}: {reason}.", system=system)


def _deletes_copied(one: _Progress) -> bool:
    route = one.operation.target.route
    return route.copy is not None and one.steps.first.kind is WriteKind.DELETE


def _answer(one: _Progress, error: MediatorError | None) -> Answer:
    if failure := one.error or error:
        return failure
    results = [one.results[i] for i in range(len(one.steps.all))]
    return merge_results(one.operation.target.route, one.steps, results)


def _unreleased(applied: Sequence[_Progress]) -> list[RecordKey]:
    """Return the records that may still have the intent: their steps found nothing to write."""
    return [
        (write.fragment, write.id)
        for one in applied
        for i, write in enumerate(one.steps.all)
        if i in one.results and one.results[i].status not in _RELEASED
    ]


def _creates(steps: Steps) -> bool:
    """Whether the first step creates the object, whose creation version the others need."""
    creating = (WriteKind.CREATE, WriteKind.REPLACE)
    return any(write.kind in creating and write.creation_version is None for write in steps.rest)
