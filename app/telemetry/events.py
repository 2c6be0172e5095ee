"""Metrics of events: requests, placements, reads of views, the change feed, purging, tenants."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Histogram

from app.telemetry.metric_group import OF_CLASS, Handlers, counter, gauge, histogram
from mediator.base.observation import (
    ChangesRelayed,
    EventStreamAppended,
    EventStreamRefused,
    FeedGapFound,
    FeedRollbackFound,
    FlowCounted,
    PlacementDecided,
    ProposalRecorded,
    RequestDelayed,
    RequestFinished,
    RequestRefused,
    RuleFired,
    StandingQueriesCounted,
    ViewReadFinished,
    ViolationDetected,
)
from sketch.purging.port import PurgerChanged, PurgesFailed, PurgesSent, PurgesWaiting

__all__ = [
    "feed_handlers",
    "flow_handlers",
    "placement_handlers",
    "purge_handlers",
    "request_handlers",
    "stream_handlers",
    "tenant_handlers",
    "view_handlers",
]

_REQUESTS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
_REQUEST_LABELS = "http_request_method", "http_route", "http_response_status_code", "url_scheme"
_STALENESS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)


_WAITS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)
_OUTCOMES: Final = frozenset({"done", "failed"})
_FLOW_COUNTERS: Final = {
    "batches": "Batches of messages that were executed.",
    "repeated_batches": "Batches whose worker was gone before they ended.",
    "lookups": "Queries and GETs that flows have sent.",
    "lookups_saved": "Those that single messages would have needed besides.",
    "repeated_requests": "Other requests that an HTTP service may have received before.",
    "pauses": "Times that rules of admission control have paused flows.",
    "late": "Messages that ended beyond the latency bound of their flow.",
}
"""Counters without further labels, by the names in a flow's report."""


_STANDING_QUERY_COUNTERS: Final = {
    "batches": "Batches that were executed for standing queries.",
    "tuples": "Tuples that were taken for them.",
    "late": "Those of them that came too late, and were dropped.",
    "results": "Results that were published.",
    "caught_up": "Tuples that a query had missed by a pause, and has executed since.",
    "pauses": "Times that rules of admission control have paused standing queries.",
}
"""Counters by the names in the event."""


def request_handlers(registry: CollectorRegistry) -> Handlers:
    """Measure requests, by the semantic conventions for HTTP (OpenTelemetry, stable)."""
    about = "Time to answer a request."
    durations = histogram(
        registry, "http_server_request_duration_seconds", about, _REQUESTS_S, *_REQUEST_LABELS
    )
    # Looking up a child by its labels takes longer than counting.
    timers: dict[tuple[str, str, int, str], Histogram] = {}

    def observe_duration(event: RequestFinished) -> None:
        labels = (event.method, event.route, event.status, event.scheme)
        timer = timers.get(labels)
        if timer is None:
            timer = timers[labels] = durations.labels(*map(str, labels))
        timer.observe(event.seconds)

    return {RequestFinished: observe_duration}


def placement_handlers(registry: CollectorRegistry) -> Handlers:
    about = "Nodes placed with a schema."
    placements = counter(registry, "portolan_placements", about, "database", "reason")
    node_labels = ("database", "node")
    about = "Violations of annotations."
    violations = counter(registry, "portolan_violations", about, *node_labels, "metric")
    about = "Recorded proposals to move a node."
    proposals = counter(registry, "portolan_proposals", about, *node_labels)

    def count_placements(event: PlacementDecided) -> None:
        for reason in event.reasons.values():
            placements.labels(event.database, reason).inc()

    return {
        PlacementDecided: count_placements,
        ViolationDetected: lambda e: violations.labels(e.database, e.node, e.metric).inc(),
        ProposalRecorded: lambda e: proposals.labels(e.database, e.node).inc(),
    }


def view_handlers(registry: CollectorRegistry) -> Handlers:
    about = "Reads that a view could have answered, by what became of it."
    reads = counter(registry, "portolan_view_reads", about, *OF_CLASS, "decision")
    about = "How old answers of a view were at most, as measured."
    staleness = histogram(
        registry, "portolan_answer_staleness_seconds", about, _STALENESS_S, *OF_CLASS
    )

    def observe_read(event: ViewReadFinished) -> None:
        reads.labels(event.database, event.class_name, event.decision).inc()
        if event.decision == "answered" and event.measured_s is not None:
            staleness.labels(event.database, event.class_name).observe(event.measured_s)

    return {ViewReadFinished: observe_read}


def feed_handlers(registry: CollectorRegistry) -> Handlers:
    changes = counter(registry, "portolan_feed_changes", "Changes relayed to the feed.", "system")
    about = "Times that the feed lost what it had."
    fallbacks = counter(registry, "portolan_feed_fallbacks", about, "system")
    about = "Times that changes were missing for good."
    gaps = counter(registry, "portolan_feed_gaps", about, "system")
    return {
        ChangesRelayed: lambda e: changes.labels(e.system).inc(e.count),
        FeedRollbackFound: lambda e: fallbacks.labels(e.system).inc(),
        FeedGapFound: lambda e: gaps.labels(e.system).inc(),
    }


def purge_handlers(registry: CollectorRegistry) -> Handlers:
    about = "Keys that caches were sent purges of."
    purges = counter(registry, "portolan_purges", about, "purger", "outcome")
    about = "Whether a cache does not take purges, and is left alone for a while."
    down = gauge(registry, "portolan_purger_down", about, "purger")
    about = "For how long the oldest purge waits that some cache has not confirmed."
    oldest = gauge(registry, "portolan_purges_oldest_seconds", about)
    return {
        PurgesSent: lambda e: purges.labels(e.purger, "sent").inc(e.keys),
        PurgesFailed: lambda e: purges.labels(e.purger, "failed").inc(e.keys),
        PurgerChanged: lambda e: down.labels(e.purger).set(e.down),
        PurgesWaiting: lambda e: oldest.set(e.oldest_s),
    }


def tenant_handlers(registry: CollectorRegistry) -> Handlers:
    about = "Requests beyond a limit of their tenant."
    refusals = counter(registry, "portolan_tenant_refusals", about, "tenant", "limit")
    about = "Requests of flows that waited for a limit of their tenant."
    delays = counter(registry, "portolan_tenant_delays", about, "tenant", "limit")
    return {
        RequestRefused: lambda e: refusals.labels(e.tenant, e.limit).inc(),
        RequestDelayed: lambda e: delays.labels(e.tenant, e.limit).inc(),
    }


def flow_handlers(registry: CollectorRegistry) -> Handlers:
    about = "Messages of flows that have ended, by their outcome."
    messages = counter(registry, "portolan_flow_messages", about, "database", "outcome")
    counters = {
        name: counter(registry, f"portolan_flow_{name}", about, "database")
        for name, about in _FLOW_COUNTERS.items()
    }
    about = "Waiting times that were computed after batches."
    waits = histogram(registry, "portolan_flow_wait_seconds", about, _WAITS_S, "database")

    def count_flow(event: FlowCounted) -> None:
        for name, number in event.counts.items():
            if name in counters:
                counters[name].labels(event.database).inc(number)
            elif name in _OUTCOMES:
                messages.labels(event.database, name).inc(number)
        if event.wait_s is not None:
            waits.labels(event.database).observe(event.wait_s)

    return {FlowCounted: count_flow}


def stream_handlers(registry: CollectorRegistry) -> Handlers:
    counters = {
        name: counter(registry, f"portolan_standing_query_{name}", about, "database")
        for name, about in _STANDING_QUERY_COUNTERS.items()
    }
    about = "Tuples that clients have appended to event streams."
    tuples = counter(registry, "portolan_event_stream_appended_tuples", about, "database")
    about = (
        "Batches that an event stream did not take, as it was full or a consumer too far behind."
    )
    refusals = counter(registry, "portolan_event_stream_refusals", about, "database", "limit")

    def count_query_events(event: StandingQueriesCounted) -> None:
        for name, number in event.counts.items():
            counters[name].labels(event.database).inc(number)

    return {
        StandingQueriesCounted: count_query_events,
        EventStreamAppended: lambda e: tuples.labels(e.database).inc(e.tuples),
        EventStreamRefused: lambda e: refusals.labels(e.database, e.limit).inc(),
    }


def admission_handlers(registry: CollectorRegistry) -> Handlers:
    about = "Times that a rule of admission control has fired."
    firings = counter(registry, "portolan_admission_rules_fired", about, "rule", "event")
    return {RuleFired: lambda e: firings.labels(str(e.rule), e.event).inc()}
