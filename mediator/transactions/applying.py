"""Applying committed writes: idempotent, and retried by any replica until complete.

Every step needs the write's intent and removes it; so it takes effect once, however often and
however late it is sent. If its result is needed even after another replica has applied it, the
store remembers it; otherwise the second replica does not learn the versions.

A committed write must happen. The results of its operators were checked against the bounds of
fields before it was committed, and the intent has kept its records unchanged. So if a store refuses
a step by the bounds of a later schema, the step is resent without them. A step that a store refuses
for another reason stays pending, and is reported (`StepRefused`).
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
"""The outcome of one operation, or the error if it is not applied completely."""

_RELEASED: Final = (Status.APPLIED, Status.LOCKED)
"""After these the write's intent is no longer on the record."""

_REFUSED: Final = (Status.REFUSED, Status.TAKEN, Status.TOO_LARGE)
"""After these a step has had no effect, and the intent stays on the record."""

_FRAGMENTS: Final = 256
"""Limit of cached fragments without bounds."""


class StepRefused(Unavailable):
    """A store refuses a step of a committed write, for no known reason."""


@dataclass(slots=True)
class _Progress:
    """An operation being applied, and the results of its steps so far."""

    operation: PreparedOperation
    steps: Steps
    results: dict[int, WriteResult] = field(default_factory=dict)
    error: MediatorError | None = None

    def due(self) -> list[tuple[int, Write]]:
        """Return the steps that can be sent now: only the first if the others need its result."""
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
        written = {(w.fragment, w.id) for progress in applied for w in progress.steps.all}
        other_keys = [
            key for operation in prepared for key in operation.target.keys if key not in written
        ]
        error = None
        if other_keys:  # remove the intent from the other records while the steps are sent
            _, error = await both(self._send_all(applied), self._release(other_keys, intent))
        else:
            await self._send_all(applied)
        error = await self._release(_unreleased(applied), intent) or error
        await concurrently(
            self._forget_copy(progress) for progress in applied if _needs_copy_removal(progress)
        )
        answers = iter([_answer(progress, error) for progress in applied])
        return [operation.outcome or next(answers) for operation in prepared]

    async def _send_all(self, applied: Sequence[_Progress]) -> None:
        await self._send_due(applied)
        # The other fragments of a new object need the creation version of the anchor.
        if remaining := [
            progress for progress in applied if progress.error is None and progress.due()
        ]:
            for progress in remaining:
                await self._bind(progress)
            await self._send_due(remaining)

    async def _send_due(self, applied: Sequence[_Progress]) -> None:
        """Send the steps that are due, with one round trip for each system."""
        due = [(progress, i, write) for progress in applied for i, write in progress.due()]
        results = await self._write_each([write for _, _, write in due])
        for (progress, i, _), result in zip(due, results, strict=True):
            progress.record(i, result)

    async def _write_each(self, writes: Sequence[Write]) -> list[WriteResult | MediatorError]:
        """Send steps; resend without bounds those that current bounds forbid.

        A store that refuses one of several steps does not say which: so each is resent alone.
        """
        results = await self._calls.write_each(writes)
        refused_indices = [
            n
            for n, result in enumerate(results)
            if isinstance(result, WriteResult) and result.status is Status.REFUSED
        ]
        if refused_indices:
            resent = await self._calls.write_each([_unbounded(writes[n]) for n in refused_indices])
            for n, result in zip(refused_indices, resent, strict=True):
                results[n] = result
        for n, write in enumerate(writes if len(writes) > 1 else ()):
            if is_refusal(results[n]):
                [results[n]] = await self._write_each([write])
        return results

    async def _bind(self, progress: _Progress) -> None:
        """Bind the remaining steps to the generation that the first one created."""
        creation_version = await self._creation_version(progress.steps.first, progress.results[0])
        remaining = tuple(
            w.with_intent(w.intent, creation_version=creation_version, remember=w.remember)
            for w in progress.steps.rest
        )
        progress.steps = Steps(progress.steps.first, remaining)

    async def _creation_version(self, write: Write, result: WriteResult) -> int:
        """Return the creation version that a step set or found."""
        if result.status is not Status.LOCKED:
            return result.creation_version
        # Another replica has applied it, and its store does not remember the result.
        [state] = await self._intents.record_states([(write.fragment, write.id)])
        return state.creation_version or max(state.versions.values(), default=0)

    async def _release(self, keys: Sequence[RecordKey], intent: str) -> MediatorError | None:
        """Remove intents from records without pending steps; returns the error if that failed."""
        try:
            if keys:
                await self._intents.unlock(keys, intent, joint=True)
        except MediatorError as error:
            return error
        return None

    async def _forget_copy(self, progress: _Progress) -> None:
        """Remove the view's copy of a deleted object, before the deletion is acknowledged."""
        if progress.error is not None:
            return
        first, route = progress.steps.first, progress.operation.target.route
        try:
            await self._remove_copy(
                route, first.id, await self._creation_version(first, progress.results[0])
            )
        except MediatorError as error:
            progress.error = error


def _unbounded(write: Write) -> Write:
    return replace(write, fragment=_unbounded_fragment(write.fragment))


@lru_cache(_FRAGMENTS)
def _unbounded_fragment(fragment: Fragment) -> Fragment:
    """Return a fragment whose fields have no bounds that operators can break."""
    fields = {
        name: replace(field_, minimum=None, maximum=None, max_length=None)
        for name, field_ in fragment.fields.items()
    }
    return replace(fragment, fields=fields)


def _refusal(write: Write, reason: object) -> StepRefused:
    system = write.fragment.system
    detail = (
        f"{system} refuses a step of a committed write to {write.fragment.class_name}/{write.id}"
    )
    return StepRefused(f"{detail}: {reason}.", system=system)


def _needs_copy_removal(progress: _Progress) -> bool:
    route = progress.operation.target.route
    return route.copy is not None and progress.steps.first.kind is WriteKind.DELETE


def _answer(progress: _Progress, error: MediatorError | None) -> Answer:
    if failure := progress.error or error:
        return failure
    results = [progress.results[i] for i in range(len(progress.steps.all))]
    return merge_results(progress.operation.target.route, progress.steps, results)


def _unreleased(applied: Sequence[_Progress]) -> list[RecordKey]:
    """Return the records that may still have the intent: their steps changed no record."""
    return [
        (write.fragment, write.id)
        for progress in applied
        for i, write in enumerate(progress.steps.all)
        if i in progress.results and progress.results[i].status not in _RELEASED
    ]


def _creates(steps: Steps) -> bool:
    """Whether the first step creates the object, whose creation version the others need."""
    creating = (WriteKind.CREATE, WriteKind.REPLACE)
    return any(write.kind in creating and write.creation_version is None for write in steps.rest)
