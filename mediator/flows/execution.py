"""Execution of a rewritten plan for a batch: shared operators once, others for each message."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Protocol

from mediator.base.clock import Clock
from mediator.base.errors import (
    Invalid,
    MediatorError,
    OutcomeUnknown,
    TooManyRequests,
    Unavailable,
)
from mediator.base.slices import Slices
from mediator.flows.http_request import HttpRequest, post
from mediator.flows.message_values import MessageValues, SizedValue, measure
from mediator.flows.partitioning import Grain, PartitioningAttribute, canonical, equal, first_case
from mediator.flows.plan import (
    Assign,
    Delivery,
    HttpGet,
    HttpWrite,
    Join,
    Query,
    Switch,
    Translate,
    Write,
)
from mediator.flows.queue import QueuedMessage
from mediator.flows.rewriting import Iterate, Once, Step
from mediator.flows.templates import fill

__all__ = ["BatchExecution", "ExecutionMetrics", "Invoker", "Message", "is_transient"]

_JOIN_SLICE: Final = 1_000
"""Rows of a join that are compared without a checkpoint."""


class Invoker(Protocol):
    """Executes what a plan invokes; its methods raise `MediatorError`."""

    async def query(self, query: Query, document: Any) -> list[dict[str, Any]]:
        """Return the objects that a query finds, as JSON."""

    async def write(self, write: Write, id_: Any, body: Any, operation: str) -> None:
        """Write an object, only once under the same operation id."""

    async def send(self, request: HttpRequest) -> Any:
        """Return the response of an HTTP service, as JSON."""


@dataclass(eq=False, slots=True)
class Message:
    """A message in execution.

    Attributes:
        original: The message as it arrived.
        values: Its values by name, as the plan has changed them.
        error: Why it failed; a failed message is not executed further.
    """

    queued: QueuedMessage
    original: Mapping[str, Any]
    values: MessageValues
    error: MediatorError | None = None

    def put(self, name: str, value: SizedValue) -> None:
        """Set a value; the message fails if all values together become too large."""
        try:
            self.values.put(name, value)
        except Invalid as error:
            self.error = error


@dataclass(eq=False, slots=True)
class ExecutionMetrics:
    """The costs of an execution, and its savings.

    Attributes:
        shared_s: Seconds of the shared operators, by the attributes that they depend on.
        linear_s: Seconds of the operators executed for each message.
        lookups: Queries, and GETs of HTTP services.
        saved: Further lookups that single messages would have needed.
        repeated_requests: Writing requests to HTTP services that may have been sent before.
    """

    shared_s: defaultdict[Grain, float] = field(default_factory=lambda: defaultdict(float))
    linear_s: float = 0.0
    lookups: int = 0
    saved: int = 0
    repeated_requests: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """The counts for the flow."""
        counts = {
            "lookups": self.lookups,
            "lookups_saved": self.saved,
            "repeated_requests": self.repeated_requests,
        }
        return {name: number for name, number in counts.items() if number}

    def add(self, of_message: ExecutionMetrics, took_s: float) -> None:
        """Add an execution for one message, whose time is all linear."""
        self.linear_s += took_s
        self.lookups += of_message.lookups
        self.saved += of_message.saved
        self.repeated_requests += of_message.repeated_requests


@dataclass(eq=False)
class BatchExecution:
    """Executes steps for messages; `flow` makes the operation ids of writes unique to the flow.

    Attributes:
        is_repeated: Whether a former worker may have executed the steps before.
    """

    _invoker: Invoker
    _flow: str
    _clock: Clock
    metrics: ExecutionMetrics = field(default_factory=ExecutionMetrics)
    is_repeated: bool = False
    _uncertain: set[str] = field(default_factory=set, init=False)
    """Ids of requests that may have been received."""

    _responses: dict[str, Any] = field(default_factory=dict, init=False)
    """Responses by request id: a repeated execution does not send the requests again."""

    _slices: Slices = field(init=False)
    """Values are bounded, so a step for one message is short; but a batch has many messages."""

    def __post_init__(self) -> None:
        self._slices = Slices(self._clock)

    async def run(self, steps: Iterable[Step], batch: Sequence[Message]) -> None:
        """Execute steps; a message that fails gets an error.

        Raises:
            MediatorError: A transient error (`is_transient`), for which a retry may succeed.
        """
        for step in steps:
            await self._slices.checkpoint()
            alive = [message for message in batch if message.error is None]
            if not alive:
                return
            if isinstance(step, Iterate):
                for group in _split(alive, step.attributes):
                    await self.run(step.body, group)
            elif step.operator.is_shared:
                await self._run_shared(step, alive)
            else:
                await self._run_linear(step, alive)

    async def _run_shared(self, step: Once, batch: Sequence[Message]) -> None:
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
            self.metrics.shared_s[step.operator.needs] += self._clock.monotonic() - started
        if branch is not None:
            await self.run(step.branches[branch], batch)

    async def _execute_once(self, step: Once, batch: Sequence[Message]) -> int | None:
        """Execute a shared operator with any message's values; return the branch to take."""
        operator, values = step.operator, batch[0].values
        match operator:
            case Switch():
                return first_case(operator.conditions, fill(operator.on, values).value)
            case Assign():
                result = fill(operator.value, values)
            case Query():
                document = fill(operator.document, values, only_scalars=True).value
                result = self._count_lookup(
                    await self._invoker.query(operator, document), operator, batch
                )
            case HttpGet():
                request = operator.request.fill(values)
                result = self._count_lookup(await self._invoker.send(request), operator, batch)
            case _:
                raise AssertionError(f"{operator.op} is not shared")
        for message in batch:
            message.put(operator.to, result)
        return None

    def _count_lookup(
        self, result: Any, operator: Query | HttpGet, batch: Sequence[Message]
    ) -> SizedValue:
        self.metrics.lookups += 1
        self.metrics.saved += len(batch) - 1
        return measure(result, f"/{operator.to}")

    async def _run_linear(self, step: Once, batch: Sequence[Message]) -> None:
        started = self._clock.monotonic()
        try:
            for message in batch:
                await self._slices.checkpoint()
                try:
                    await self._execute(step, message)
                except MediatorError as error:
                    if is_transient(error):
                        raise
                    message.error = error
        finally:
            self.metrics.linear_s += self._clock.monotonic() - started

    async def _execute(self, step: Once, message: Message) -> None:
        operator, values = step.operator, message.values
        match operator:
            case Join():
                values.put(operator.to, await self._join(operator, values))
            case Translate():
                message.values = _translate(operator, values)
            case Write():
                id_, body = fill(operator.id, values).value, fill(operator.body, values).value
                await self._invoker.write(operator, id_, body, self._operation(operator, message))
            case HttpWrite():
                operation = self._operation(operator, message)
                response = await self._send_once(
                    operator.request.fill(values, operation), operation
                )
                if operator.to is not None:
                    values.put(operator.to, measure(response, f"/{operator.to}"))
            case Delivery():
                operation = self._operation(operator, message)
                result = {
                    "flow": self._flow,
                    "ticket": message.queued.ticket,
                    "result": dict(values),
                }
                await self._send_once(post(operator.url, operation, result), operation)
            case _:
                raise AssertionError(f"{operator.op} is not for one message")

    async def _join(self, join: Join, values: MessageValues) -> SizedValue:
        rows = values[join.source]
        if not isinstance(rows, list):
            raise Invalid(f"/{join.source} is joined with, but is not a list.")
        criteria = fill(join.on, values).value
        for number, row in enumerate(rows):
            if number % _JOIN_SLICE == 0:
                await self._slices.checkpoint()
            if isinstance(row, Mapping) and all(
                name in row and equal(row[name], value) for name, value in criteria.items()
            ):
                return measure(row, f"/{join.to}")
        return measure(None, f"/{join.to}")

    def _operation(self, operator: Write | HttpWrite | Delivery, message: Message) -> str:
        """Return the operation id of a write for a message, equal for every worker."""
        # Only the message identifies the write: its values may come from a repeated lookup.
        text = f"{self._flow}:{message.queued.ticket}:{operator.pointer}"
        return blake2b(text.encode(), digest_size=16).hexdigest()

    async def _send_once(self, request: HttpRequest, operation: str) -> Any:
        if operation not in self._responses:
            if self.is_repeated or operation in self._uncertain:
                self.metrics.repeated_requests += 1
            try:
                self._responses[operation] = await self._invoker.send(request)
            except OutcomeUnknown:
                self._uncertain.add(operation)
                raise
        return self._responses[operation]


def is_transient(error: MediatorError) -> bool:
    """Whether a retry may succeed a little later."""
    return isinstance(error, Unavailable | OutcomeUnknown | TooManyRequests)


def _split(
    batch: Iterable[Message], attributes: Sequence[PartitioningAttribute]
) -> list[list[Message]]:
    """Return the partitions of a batch, each with its messages in order of arrival."""
    partitions: defaultdict[bytes, list[Message]] = defaultdict(list)
    for message in batch:
        partitions[canonical(message.original, attributes)].append(message)
    return list(partitions.values())


def _translate(translate: Translate, values: MessageValues) -> MessageValues:
    result = MessageValues()
    for name, template in translate.value.items():
        result.put(name, fill(template, values))
    return result
