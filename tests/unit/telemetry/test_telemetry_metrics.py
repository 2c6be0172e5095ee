"""Observations are counted in their area, at the latest when the metrics are scraped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
from prometheus_client import CollectorRegistry, generate_latest

from app.admin.api.health import Lifecycle
from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.telemetry.metrics import MAX_WAITING, Metrics
from app.telemetry.telemetry import StateRefresher
from mediator.base.errors import Unavailable
from mediator.base.observation import (
    EventStreamAppended,
    EventStreamRefused,
    FlowCounted,
    PlacementDecided,
    RequestFinished,
    StandingQueriesCounted,
    StoreCallFinished,
    SystemRegistered,
    ViewReadFinished,
)
from tests.conformance.virtual_time import HandClock

READ = StoreCallFinished("cache", "news", "articles", "read", 2, 0.002, "ok")


def scrape(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_waiting_observations_are_counted_at_every_scrape() -> None:
    metrics = Metrics()
    count = MAX_WAITING + 1
    for _ in range(count):
        metrics.observe(RequestFinished("GET", "/v1", 200, 0.01, "https"))
    text = scrape(metrics)
    labels = (
        'http_request_method="GET",http_response_status_code="200",'
        'http_route="/v1",url_scheme="https"'
    )
    assert f"http_server_request_duration_seconds_count{{{labels}}} {count}.0" in text
    assert text == scrape(metrics), "a second scrape counts nothing again"


def test_calls_name_the_kind_of_their_system_once_it_is_known() -> None:
    metrics = Metrics()
    metrics.observe(READ)
    assert 'db_system_name="other"' in scrape(metrics)
    metrics.observe(SystemRegistered("cache", "redis", "Redis 7"))
    metrics.observe(READ)
    assert 'db_system_name="redis"' in scrape(metrics)
    assert 'portolan_store_operations_total{operation="read",system="cache"} 4.0' in scrape(metrics)


def test_calls_have_the_type_of_their_error() -> None:
    metrics = Metrics()
    metrics.observe(READ)
    metrics.observe(StoreCallFinished("cache", "news", "articles", "read", 1, 2.0, "timeout"))
    text = scrape(metrics)
    assert 'error_type=""' in text
    assert 'error_type="timeout"' in text


def test_decisions_are_counted_by_their_reason() -> None:
    metrics = Metrics()
    systems, reasons = (
        {"a": "s", "a.x": "s", "a.y": "t"},
        {"a": "own", "a.x": "own", "a.y": "bound"},
    )
    metrics.observe(PlacementDecided("news", 1, systems, reasons))
    for decision, measured_s in (("answered", 0.2), ("stale", None), ("unseen", 0.1)):
        metrics.observe(ViewReadFinished("news", "articles", decision, measured_s))  # type: ignore[arg-type]  # a literal each
    text = scrape(metrics)
    assert 'portolan_placements_total{database="news",reason="own"} 2.0' in text
    of_class = 'class="articles",database="news"'
    for decision in ("answered", "stale", "unseen"):
        assert f'portolan_view_reads_total{{{of_class},decision="{decision}"}} 1.0' in text
    assert f"portolan_answer_staleness_seconds_count{{{of_class}}} 1.0" in text, (
        "answered reads only"
    )


def test_flows_are_counted_by_their_database() -> None:
    metrics = Metrics()
    counts = {"batches": 1, "messages": 3, "lookups": 1, "lookups_saved": 2}
    metrics.observe(FlowCounted("news", "flow", counts, 0.2))
    metrics.observe(FlowCounted("news", "other", {"done": 2, "failed": 1, "late": 1}))
    text = scrape(metrics)
    for name, number in (("batches", 1), ("lookups", 1), ("lookups_saved", 2), ("late", 1)):
        assert f'portolan_flow_{name}_total{{database="news"}} {number}.0' in text
    for outcome, number in (("done", 2), ("failed", 1)):
        labels = f'database="news",outcome="{outcome}"'
        assert f"portolan_flow_messages_total{{{labels}}} {number}.0" in text
    assert 'portolan_flow_wait_seconds_count{database="news"} 1.0' in text


def test_standing_queries_and_event_streams_are_counted_by_their_database() -> None:
    metrics = Metrics()
    counts = {"batches": 1, "tuples": 5, "late": 2, "results": 3}
    metrics.observe(StandingQueriesCounted("news", counts))
    metrics.observe(StandingQueriesCounted("news", {"caught_up": 4, "results": 1}))
    metrics.observe(StandingQueriesCounted("news", {"pauses": 1}))
    metrics.observe(EventStreamAppended("news", "prices", 500))
    metrics.observe(EventStreamRefused("news", "prices", "consumer"))
    text = scrape(metrics)
    for name, number in {**counts, "results": 4, "caught_up": 4, "pauses": 1}.items():
        assert f'portolan_standing_query_{name}_total{{database="news"}} {number}.0' in text
    assert 'portolan_event_stream_appended_tuples_total{database="news"} 500.0' in text
    refusals = 'portolan_event_stream_refusals_total{database="news",limit="consumer"} 1.0'
    assert refusals in text


def test_gauges_show_current_values() -> None:
    metrics = Metrics()
    ages = {("news", "articles"): 0.4}
    active = {("GET", "http"): 3}
    metrics.connect(metrics.view_ages, lambda: ages)
    metrics.connect(metrics.active, lambda: active)
    text = scrape(metrics)
    of_class = 'class="articles",database="news"'
    assert f"portolan_view_staleness_seconds{{{of_class}}} 0.4" in text
    assert 'http_server_active_requests{http_request_method="GET",url_scheme="http"} 3.0' in text
    ages.clear()
    assert f"portolan_view_staleness_seconds{{{of_class}}}" not in scrape(metrics)


async def test_states_are_measured_periodically_even_if_one_server_fails_later() -> None:
    metrics, clock, counts = Metrics(), HandClock(), [0, 0]

    async def count_workers() -> None:
        counts[0] += 1
        if counts[0] > 1:
            raise Unavailable("away", system="catalogue")
        metrics.workers.set(counts[0])

    async def count_tuples() -> None:
        counts[1] += 1
        metrics.stream_tuples.labels("news").set(counts[1])

    refresher = StateRefresher([count_workers, count_tuples], clock)
    for _ in range(3):
        await refresher.refresh()
    assert counts == [1, 1]
    clock.elapsed_s += 60
    await refresher.refresh()
    assert counts == [2, 2]
    text = scrape(metrics)
    assert "portolan_workers 1.0" in text, "the last known value"
    assert 'portolan_event_stream_tuples{database="news"} 2.0' in text


async def test_startup_liveness_and_readiness_differ() -> None:
    health: dict[str, Any] = {"ready": False, "degraded": []}

    async def readiness() -> dict[str, Any]:
        return dict(health)

    control: Any = SimpleNamespace(readiness=readiness)
    lifecycle = Lifecycle()
    app = create_admin_app(control, CollectorRegistry(), AdminContext(lifecycle=lifecycle))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:

        async def probes() -> list[int]:
            paths = ("/startup", "/live", "/ready")
            return [(await admin.get(path)).status_code for path in paths]

        assert await probes() == [503, 200, 503]
        health["ready"] = True
        assert await probes() == [200, 200, 200]
        health["ready"] = False
        assert await probes() == [200, 200, 503], "startup stays complete"
        health["ready"] = True
        lifecycle.draining = True
        assert await probes() == [200, 200, 503], "it is draining"
