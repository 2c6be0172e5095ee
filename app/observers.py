"""Subscribers to what happens: the log, and the metrics that Prometheus scrapes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.coherence.results import ResultsChanged
from mediator.observation import (
    ChangesRelayed,
    CircuitChanged,
    FeedFellBack,
    FeedGapFound,
    FeedLagMeasured,
    Observation,
    ProposalRecorded,
    RedoRecovered,
    RequestFinished,
    StoreCallFinished,
    ViolationDetected,
)
from sketch.port import Part
from sketch.purging.events import (
    PurgeEvent,
    PurgeQueueUnanswered,
    PurgerChanged,
    PurgesFailed,
    PurgesSent,
    PurgesWaiting,
)
from sketch.states import PartState
from sketch.ttl import Regret
from sketch.ttl.events import LifeGranted

__all__ = ["Instruments", "log_observation"]

_log = logging.getLogger("portolan")

# Buckets of the OpenTelemetry semantic conventions for HTTP and database durations, in seconds.
_HTTP_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_STORE_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10)
_LIVES_S: Final = (0, 0.5, 1, 2, 5, 10, 30, 60, 300, 600, 3_600, 86_400)

_FREQUENT: Final = frozenset({RequestFinished, StoreCallFinished})
_UNLOGGED: Final = _FREQUENT | {ChangesRelayed, FeedLagMeasured}

MOST_WAITING: Final = 128
"""Observations that wait to be counted, at most."""


def log_observation(told: Observation) -> None:
    """Write what operators want to read; what happens all the time is left to the metrics."""
    if told.__class__ in _UNLOGGED:
        return
    match told:
        case CircuitChanged(open=True) | ViolationDetected() | FeedFellBack():
            _log.warning("%s", told)
        case FeedGapFound():
            _log.error("%s", told)
        case _:
            _log.info("%s", told)


class Instruments(Collector):
    """Prometheus metrics; `observe` is on the path of every request.

    What is told there for every request only waits, and is counted many at a time, at the latest
    when the registry is read: the code that counts is warm then, and takes a fraction of the time.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(self)  # before the others: they are asked in this order
        self._waiting: list[Observation | LifeGranted] = []
        # Finding a child by its labels takes longer than counting.
        self._children: dict[tuple[str, ...], tuple[Histogram, Counter]] = {}
        self._life_timers: dict[Part, Histogram] = {}
        self._timers: dict[tuple[str, str, int], Histogram] = {}
        self._requests = Histogram(
            "http_server_request_duration_seconds",
            "Time to answer a request.",
            ["method", "route", "status"],
            buckets=_HTTP_S,
            registry=self.registry,
        )
        self._calls = Histogram(
            "db_client_operation_duration_seconds",
            "Time of a round trip to a store.",
            ["system", "database", "collection", "operation", "outcome"],
            buckets=_STORE_S,
            registry=self.registry,
        )
        self._operations = self._counter(
            "portolan_store_operations", "Operations sent to a store.", "system", "operation"
        )
        self._circuits = Gauge(
            "portolan_circuit_open",
            "Whether calls to a system are held back.",
            ["system"],
            registry=self.registry,
        )
        self._violations = self._counter(
            "portolan_violations", "Violations of annotations.", "database", "node", "metric"
        )
        self._proposals = self._counter(
            "portolan_proposals", "Recorded proposals to move a node.", "database", "node"
        )
        self._redone = self._counter(
            "portolan_redo", "Writes over several systems settled after a crash.", "outcome"
        )
        self._relayed = self._counter(
            "portolan_feed_changes", "Changes brought to the feed.", "system"
        )
        self._fallbacks = self._counter(
            "portolan_feed_fallbacks", "Times that the feed lost what it had.", "system"
        )
        self._gaps = self._counter(
            "portolan_feed_gaps", "Times that changes were missing for good.", "system"
        )
        self._lag = Gauge(
            "portolan_feed_lag_seconds",
            "For how long the feed may have lacked changes of a system.",
            ["database", "system"],
            registry=self.registry,
        )
        self._purges = self._counter(
            "portolan_purges", "Keys that caches were asked to forget.", "purger", "outcome"
        )
        self._purgers_down = Gauge(
            "portolan_purger_down",
            "Whether a cache does not take purges, and is left alone for a while.",
            ["purger"],
            registry=self.registry,
        )
        self._purges_oldest = Gauge(
            "portolan_purges_oldest_seconds",
            "For how long the oldest purge waits that some cache has not confirmed.",
            registry=self.registry,
        )
        self._sketch_keys = self._of_class("keys", "Keys in the filter.")
        self._sketch_bits = self._of_class("bits_set", "Bits of the filter that are set.")
        self._sketch_pending = self._of_class("pending_writes", "Writes that are pending.")
        self._sketch_purges = self._of_class("purges_due", "Purges that nobody sends yet.")
        self._results = self._counter(
            "portolan_query_results_changed",
            "Cached results of queries that writes may have changed.",
            "database",
            "class",
        )
        self._queries = Gauge(
            "portolan_registered_queries",
            "Queries whose results may be cached, as this replica knew them at the last change.",
            ["database", "class"],
            registry=self.registry,
        )
        self._lives = Histogram(
            "portolan_cache_life_seconds",
            "Lives that answers were granted.",
            ["database", "class"],
            buckets=_LIVES_S,
            registry=self.registry,
        )
        self._fates = self._counter(
            "portolan_cache_copies", "What became of copies.", "database", "class", "fate"
        )
        self._life_error = Gauge(
            "portolan_cache_life_error",
            "Share of the copies that were invalidated, less the share that was expected.",
            ["database", "class"],
            registry=self.registry,
        )
        self._regrets: Callable[[], Mapping[Part, Regret]] = dict
        self._regretted: dict[Part, Regret] = {}
        self._subscribers = Gauge(
            "portolan_feed_subscribers", "Clients that follow a feed.", registry=self.registry
        )
        self._in_flight = Gauge(
            "http_server_active_requests",
            "Requests whose answer has not begun.",
            registry=self.registry,
        )

    def hear_purging(self, told: PurgeEvent) -> None:
        """Count what became of purges."""
        match told:
            case PurgesSent():
                self._purges.labels(told.purger, "sent").inc(told.keys)
            case PurgesFailed():
                self._purges.labels(told.purger, "failed").inc(told.keys)
            case PurgerChanged():
                self._purgers_down.labels(told.purger).set(told.down)
            case PurgesWaiting():
                self._purges_oldest.set(told.oldest_s)
            case PurgeQueueUnanswered():
                return

    def measure_sketch(self, states: Sequence[PartState]) -> None:
        """Show how the parts of the sketch are; those that are gone are shown no more."""
        gauges = {
            self._sketch_keys: [state.keys for state in states],
            self._sketch_bits: [state.bits_set for state in states],
            self._sketch_pending: [state.pending for state in states],
            self._sketch_purges: [state.purges_due for state in states],
        }
        for gauge, figures in gauges.items():
            gauge.clear()
            for state, figure in zip(states, figures, strict=True):
                gauge.labels(*state.part).set(figure)

    def _of_class(self, what: str, about: str) -> Gauge:
        name = f"portolan_sketch_{what}"
        return Gauge(name, about, ["database", "class"], registry=self.registry)

    def hear_results(self, told: ResultsChanged) -> None:
        """Count results that writes may have changed."""
        self._results.labels(*told.part).inc(told.changed)
        self._queries.labels(*told.part).set(told.registered)

    def hear_life(self, told: LifeGranted) -> None:
        """Note a life that was granted; on the path of every request, and counted later."""
        self._wait(told)

    def count_regrets(self, regrets: Callable[[], Mapping[Part, Regret]]) -> None:
        """Ask `regrets` what became of copies, whenever the registry is read."""
        self._regrets = regrets

    def count_subscribers(self, count: Callable[[], int]) -> None:
        """Ask `count` for the clients that follow a feed, whenever the registry is read."""
        self._subscribers.set_function(count)

    def count_in_flight(self, count: Callable[[], int]) -> None:
        """Ask `count` for the requests under way, whenever the registry is read."""
        self._in_flight.set_function(count)

    def collect(self) -> Iterable[Metric]:
        """Count what waits, so that the metrics asked next have it; there is none of its own."""
        self._count_waiting()
        regrets = self._regrets()
        for part, regret in regrets.items():
            self._count_fates(part, regret)
        # What an estimator has forgotten begins anew.
        self._regretted = {part: replace(regret) for part, regret in regrets.items()}
        return ()

    def _count_fates(self, part: Part, regret: Regret) -> None:
        before = self._regretted.get(part) or Regret()
        for fate in ("invalidations", "revalidations_paid", "stale_avoided"):
            since = getattr(regret, fate) - getattr(before, fate)
            self._fates.labels(*part, fate).inc(max(0, since))
        self._life_error.labels(*part).set(regret.error)

    def _wait(self, told: Observation | LifeGranted) -> None:
        self._waiting.append(told)
        if len(self._waiting) >= MOST_WAITING:
            self._count_waiting()

    def _count_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        for told in waiting:
            if isinstance(told, StoreCallFinished):
                self._call(told)
            elif isinstance(told, RequestFinished):
                self._request(told)
            elif isinstance(told, LifeGranted):
                self._life(told)

    def observe(self, told: Observation) -> None:
        """Count what happened."""
        if told.__class__ in _FREQUENT:
            self._wait(told)
            return
        match told:
            case CircuitChanged():
                self._circuits.labels(told.system).set(told.open)
            case ViolationDetected():
                self._violations.labels(told.database, told.node, told.metric).inc()
            case ProposalRecorded():
                self._proposals.labels(told.database, told.node).inc()
            case RedoRecovered():
                self._redone.labels(told.outcome).inc()
            case _:
                self._observe_feed(told)

    def _observe_feed(self, told: Observation) -> None:
        match told:
            case ChangesRelayed():
                self._relayed.labels(told.system).inc(told.count)
            case FeedLagMeasured():
                self._lag.labels(told.database, told.system).set(told.seconds)
            case FeedFellBack():
                self._fallbacks.labels(told.system).inc()
            case FeedGapFound():
                self._gaps.labels(told.system).inc()
            case _:
                return

    def _call(self, told: StoreCallFinished) -> None:
        labels = (told.system, told.database, told.class_name, told.operation, told.outcome)
        timer, counter = self._children.get(labels) or self._children_of(labels)
        timer.observe(told.seconds)
        counter.inc(told.count)

    def _children_of(self, labels: tuple[str, ...]) -> tuple[Histogram, Counter]:
        system, _, _, operation, _ = labels
        timer = self._calls.labels(*labels)
        made = self._children[labels] = timer, self._operations.labels(system, operation)
        return made

    def _request(self, told: RequestFinished) -> None:
        labels = (told.method, told.route, told.status)
        timer = self._timers.get(labels)
        if timer is None:
            timer = self._timers[labels] = self._requests.labels(*map(str, labels))
        timer.observe(told.seconds)

    def _life(self, told: LifeGranted) -> None:
        timer = self._life_timers.get(told.part)
        if timer is None:
            timer = self._life_timers[told.part] = self._lives.labels(*told.part)
        timer.observe(told.life_s)

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(name, help_, labels, registry=self.registry)
