"""Events of the mediator: logs, metrics, placement statistics and violations observe them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from mediator.base.immutable import immutable

__all__ = [
    "AdmissionRulesSet",
    "BatchFinished",
    "CallOutcome",
    "ChangesRelayed",
    "CircuitChanged",
    "ClockSkewMeasured",
    "CostlyQueryFound",
    "FeedGapFound",
    "FeedRollbackFound",
    "FilteredObserver",
    "Observation",
    "Observer",
    "PlacementDecided",
    "ProposalRecorded",
    "RedoRecovered",
    "RequestFinished",
    "RequestRefused",
    "RuleFired",
    "StoreCallFinished",
    "SystemRegistered",
    "ViewDecision",
    "ViewReadFinished",
    "ViolationDetected",
    "broadcast",
    "ignore",
]

CallOutcome: TypeAlias = Literal["ok", "unavailable", "timeout", "refused"]
ViewDecision: TypeAlias = Literal["answered", "stale", "unseen", "unavailable", "missing"]


@immutable
class StoreCallFinished:
    """One round trip to a store, of `count` calls of one class; `seconds` is the store's time."""

    system: str
    database: str
    class_name: str
    operation: Literal["read", "write"]
    count: int
    seconds: float
    outcome: CallOutcome


@immutable
class BatchFinished:
    """Single operations of one class shared store calls (`mediator.operations.coalescer`).

    Attributes:
        calls: Calls that the store got.
        operations: Operations that these answered; more than calls if some were equal reads.
        waited_s: How long the first operation waited, in seconds.
    """

    system: str
    database: str
    class_name: str
    operation: Literal["read", "write"]
    calls: int
    operations: int
    waited_s: float


@dataclass(frozen=True, slots=True)
class CostlyQueryFound:
    """A query took long, or was refused because it would.

    Attributes:
        shape: The query without constants.
        seconds: Its duration.
        rows: Records that stores sent for it; None: it was refused.
        without_index: Fields of its filter and order that could have an index but have none.
        refusal: The reason of the refusal; None: it was answered.
        indexes: The fields of each index that would help, the best first.
    """

    database: str
    class_name: str
    shape: str
    seconds: float
    rows: int | None
    without_index: tuple[str, ...]
    refusal: Literal["needs a scan", "too costly"] | None
    indexes: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CircuitChanged:
    """The circuit breaker of a system opened (no calls until it is probed) or closed."""

    system: str
    open: bool
    reason: str


@dataclass(frozen=True, slots=True)
class SystemRegistered:
    system: str
    kind: str
    server: str


@dataclass(frozen=True, slots=True)
class PlacementDecided:
    """The placements of a database were decided with a schema.

    `placements` has the system of each node, `reasons` the kind of choice that led there.
    """

    database: str
    epoch: int
    placements: dict[str, str]
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class ProposalRecorded:
    """Scores now favour another system; data moves only by migration."""

    database: str
    node: str
    current: str
    proposed: str
    margin: float


@dataclass(frozen=True, slots=True)
class ViolationDetected:
    database: str
    node: str
    metric: str
    system: str
    measured: float
    score: float
    below: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class RedoRecovered:
    """A write over several systems whose coordinator had gone was rolled forward or dropped.

    Refused: it is committed, but a store refuses a step of it, for `reason`. It is retried.
    """

    database: str
    intent: str
    outcome: Literal["applied", "dropped", "refused"]
    reason: str = ""


@immutable
class ChangesRelayed:
    system: str
    count: int


@dataclass(frozen=True, slots=True)
class FeedRollbackFound:
    """The feed lost changes of a system; they are relayed again from its logs."""

    system: str


@dataclass(frozen=True, slots=True)
class FeedGapFound:
    """Changes are missing from the feed for good; these databases' feeds start new generations."""

    system: str
    databases: tuple[str, ...]
    reason: str


@immutable
class ClockSkewMeasured:
    """The minimum skew of a server's clock from this replica's; negative: it is behind."""

    system: str
    seconds: float


@immutable
class ViewReadFinished:
    """The outcome of a read that a view could answer.

    It was `answered`; or its systems are read, because the copies are too old (`stale`), lack
    writes that the reader has seen (`unseen`), do not have the object (`missing`), or the view does
    not answer (`unavailable`). `measured_s` is the maximum age of the copies; None: unknown.
    """

    database: str
    class_name: str
    decision: ViewDecision
    measured_s: float | None


@immutable
class RequestFinished:
    method: str
    route: str
    status: int
    seconds: float
    scheme: str = "http"


@immutable
class RequestRefused:
    """A request exceeded a limit of its tenant; `limit` is its name in `TenantLimits`."""

    tenant: str
    limit: str


@immutable
class RequestDelayed:
    """A request of a message flow waits because its tenant has reached a limit."""

    tenant: str
    limit: str


@dataclass(frozen=True, slots=True)
class AdmissionRulesSet:
    """Rules of admission control were set, by a subject of a tenant; None: without a key."""

    version: int
    rules: int
    tenant: str | None
    subject: str | None


@dataclass(frozen=True, slots=True)
class RuleFired:
    """A rule of admission control fired; `rule` is its number, `event` the kind of event."""

    rule: int
    event: str
    actions: tuple[str, ...]


@immutable
class FlowCounted:
    """A worker of a message flow has executed a batch, or ended messages.

    Attributes:
        counts: Counts since the previous event, by the names in a flow's report.
        wait_s: The computed waiting time, in seconds; None: not computed.
    """

    database: str
    flow: str
    counts: Mapping[str, int]
    wait_s: float | None = None


@immutable
class StandingQueriesCounted:
    """The holder of a database's standing queries has published a batch, or a rule has paused one.

    Attributes:
        counts: Counts since the previous event: `batches`, `tuples`, `late`, `results`,
            `caught_up` and `pauses`.
    """

    database: str
    counts: Mapping[str, int]


@immutable
class EventStreamAppended:
    """A client has appended tuples to an event stream."""

    database: str
    stream: str
    tuples: int


@immutable
class EventStreamRefused:
    """A stream refused tuples as back-pressure; `limit` is the reason, as in its problem."""

    database: str
    stream: str
    limit: str


Observation: TypeAlias = (
    StoreCallFinished
    | BatchFinished
    | CircuitChanged
    | ClockSkewMeasured
    | CostlyQueryFound
    | SystemRegistered
    | PlacementDecided
    | ProposalRecorded
    | ViolationDetected
    | RedoRecovered
    | ChangesRelayed
    | FeedRollbackFound
    | FeedGapFound
    | ViewReadFinished
    | RequestFinished
    | RequestRefused
    | RequestDelayed
    | FlowCounted
    | StandingQueriesCounted
    | EventStreamAppended
    | EventStreamRefused
    | AdmissionRulesSet
    | RuleFired
)
Observer: TypeAlias = Callable[[Observation], None]


def ignore(_: Observation) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True)
class FilteredObserver:
    """An observer that gets only some kinds of events from `broadcast`; directly called, all."""

    observer: Observer
    kinds: Collection[type[Any]]

    def __call__(self, observation: Observation) -> None:
        self.observer(observation)


def broadcast(*observers: Observer) -> Observer:
    """Return an observer that notifies all of `observers`, in their order."""
    concerned: dict[type[Any], tuple[Observer, ...]] = {}

    def choose(kind: type[Any]) -> tuple[Observer, ...]:
        chosen = [
            candidate.observer if isinstance(candidate, FilteredObserver) else candidate
            for candidate in observers
            if not isinstance(candidate, FilteredObserver) or kind in candidate.kinds
        ]
        return concerned.setdefault(kind, tuple(chosen))

    def notify(observation: Observation) -> None:
        kind = observation.__class__
        for observer in concerned.get(kind) or choose(kind):
            observer(observation)

    return notify
