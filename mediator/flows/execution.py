"""Executing a rewritten plan for a batch: what is shared once, what is not for each message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from mediator.base.clock import Clock
from mediator.base.errors import (
    Invalid,
    MediatorError,
    OutcomeUnknown,
    TooManyRequests,
    Unavailable,
)
from mediator.flows.partitioning import Grain, PartitioningAttribute, canonical, equal, first_case
from mediator.flows.plan import Assign, Join, Query, Switch, Translate, Write
from mediator.flows.queue import QueuedMessage
from mediator.flows.rewriting import Iterate, Once, Step
from mediator.flows.templates import fill

__all__ = ["BatchExecution", "Invoker", "Measured", "Message", "is_transient"]


class Invoker(Protocol):
    """Does what a plan invokes; its methods raise `MediatorError`."""

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        """Return the objects that a query finds, as JSON."""

    async def write(self, write: Write, id_: Any, body: Any, operation: str) -> None:
        """Write an object; under the same operation id only once."""


@dataclass(eq=False, slots=True)
class Message:
    """A message under way.

    Attributes:
        original: What arrived.
        values: What the plan has made of it.
        error: Why it failed; nothing more is done with it then.
    """

    queued: QueuedMessage
    original: Mapping[str, Any]
    values: dict[str, Any]
    error: MediatorError | None = None


@dataclass(eq=False, slots=True)
class Measured:
    """What an execution took, and what it saved.

    Attributes:
        shared_s: Seconds of the operators that are executed once, by what they depend on.
        linear_s: Seconds of the operators that are executed for each message.
        lookups: Queries.
        saved: Queries that single messages would have needed besides.
    """

    shared_s: defaultdict[Grain, float] = field(default_factory=lambda: defaultdict(float))
    linear_s: float = 0.0
    lookups: int = 0
    saved: int = 0


@dataclass(eq=False)
class BatchExecution:
    """Executes steps for messages; `flow` makes the operation ids of writes the flow's own."""

    _invoker: Invoker
    _flow: str
    _clock: Clock
    measured: Measured = field(default_factory=Measured)

    async def run(self, steps: Iterable[Step], batch: Sequence[Message]) -> None:
        """Execute steps; a message that fails has an error then.

        Raises:
            MediatorError: What may go better the next time (`is_transient`).
        """
        for step in steps:
            alive = [message for message in batch if message.error is None]
            if not alive:
                return
            if isinstance(step, Iterate):
                for group in _split(alive, step.attributes):
                    await self.run(step.body, group)
            elif step.operator.is_shared:
                await self._shared(step, alive)
            else:
                await self._linear(step, alive)

    async def _shared(self, step: Once, batch: Sequence[Message]) -> None:
        started = self._clock.monotonic()
        try:
            branch = await self._execute_once(step, batch)
        except MediatorError as error:
            if is_transient(error):
                raise
            for message in batch:
                message.error = error
            return
        finally:
            self.measured.shared_s[step.operator.needs] += self._clock.monotonic() - started
        if branch is not None:
            await self.run(step.branches[branch], batch)

    async def _execute_once(self, step: Once, batch: Sequence[Message]) -> int | None:
        """Execute a shared operator with the values of any message; return the branch to take."""
        operator, values = step.operator, batch[0].values
        match operator:
            case Switch():
                return first_case(operator.conditions, fill(operator.on, values))
            case Assign():
                result = fill(operator.value, values)
            case Query():
                document = fill(operator.document, values, only_scalars=True)
                result = await self._invoker.query(operator, document)
                self.measured.lookups += 1
                self.measured.saved += len(batch) - 1
            case _:
                raise AssertionError(f"{operator.op} is not shared")
        for message in batch:
            message.values[operator.to] = result
        return None

    async def _linear(self, step: Once, batch: Sequence[Message]) -> None:
        started = self._clock.monotonic()
        try:
            for message in batch:
                try:
                    await self._execute(step, message)
                except MediatorError as error:
                    if is_transient(error):
                        raise
                    message.error = error
        finally:
            self.measured.linear_s += self._clock.monotonic() - started

    async def _execute(self, step: Once, message: Message) -> None:
        operator, values = step.operator, message.values
        match operator:
            case Join():
                values[operator.to] = _joined(operator, values)
            case Translate():
                message.values = fill(operator.value, values)
            case Write():
                id_, body = fill(operator.id, values), fill(operator.body, values)
                operation = f"{self._flow}:{message.queued.ticket}:{operator.pointer}"
                await self._invoker.write(operator, id_, body, operation)
            case _:
                raise AssertionError(f"{operator.op} is not for one message")


def is_transient(error: MediatorError) -> bool:
    """Whether the same may succeed a little later."""
    return isinstance(error, Unavailable | OutcomeUnknown | TooManyRequests)


def _split(
    batch: Iterable[Message], attributes: Sequence[PartitioningAttribute]
) -> list[list[Message]]:
    """Return the parts of a batch, each with its messages, in the order of their arrival."""
    parts: defaultdict[bytes, list[Message]] = defaultdict(list)
    for message in batch:
        parts[canonical(message.original, attributes)].append(message)
    return list(parts.values())


def _joined(join: Join, values: Mapping[str, Any]) -> Any:
    rows = values[join.source]
    if not isinstance(rows, list):
        raise Invalid(f"/{join.source} is joined with, and is no list.")
    wanted = {name: fill(template, values) for name, template in join.on.items()}
    for row in rows:
        if isinstance(row, Mapping) and all(
            name in row and equal(row[name], value) for name, value in wanted.items()
        ):
            return row
    return None
