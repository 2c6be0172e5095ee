"""What is told is counted in its area, at the latest when somebody looks."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import httpx
from prometheus_client import CollectorRegistry, generate_latest

from app.admin.api.health import Lifecycle
from app.admin.application import create_admin_app
from app.admin.context import AdminContext
from app.telemetry.jobs import JobRefresher
from app.telemetry.metrics import MOST_WAITING, Metrics
from mediator.base.clock import SystemClock
from mediator.base.errors import Unavailable
from mediator.base.observation import (
    PlacementDecided,
    RequestFinished,
    StoreCallFinished,
    SystemRegistered,
    ViewReadFinished,
)

READ = StoreCallFinished("cache", "news", "articles", "read", 2, 0.002, "ok")


def scraped(metrics: Metrics) -> str:
    return generate_latest(metrics.registry).decode()


def test_what_waits_is_counted_at_every_look() -> None:
    metrics = Metrics()
    count = MOST_WAITING + 1
    for _ in range(count):
        metrics.observe(RequestFinished("GET", "/v1", 200, 0.01, "https"))
    told = scraped(metrics)
    labels = (
        'http_request_method="GET",http_response_status_code="200",'
        'http_route="/v1",url_scheme="https"'
    )
    assert f"http_server_request_duration_seconds_count{{{labels}}} {count}.0" in told
    assert told == scraped(metrics), "a second look counts nothing again"


def test_calls_name_the_kind_of_their_system_once_it_is_known() -> None:
    metrics = Metrics()
    metrics.observe(READ)
    assert 'db_system_name="other"' in scraped(metrics)
    metrics.observe(SystemRegistered("cache", "redis", "Redis 7"))
    metrics.observe(READ)
    assert 'db_system_name="redis"' in scraped(metrics)
    assert 'portolan_store_operations_total{operation="read",system="cache"} 4.0' in scraped(
        metrics
    )


def test_how_a_call_failed_is_told_and_nothing_if_it_did_not() -> None:
    metrics = Metrics()
    metrics.observe(READ)
    metrics.observe(StoreCallFinished("cache", "news", "articles", "read", 1, 2.0, "timeout"))
    told = scraped(metrics)
    assert 'error_type=""' in told
    assert 'error_type="timeout"' in told


def test_decisions_are_counted_by_their_reason() -> None:
    metrics = Metrics()
    systems, reasons = (
        {"a": "s", "a.x": "s", "a.y": "t"},
        {"a": "own", "a.x": "own", "a.y": "bound"},
    )
    metrics.observe(PlacementDecided("news", 1, systems, reasons))
    for decision, measured_s in (("answered", 0.2), ("stale", None), ("unseen", 0.1)):
        metrics.observe(ViewReadFinished("news", "articles", decision, measured_s))  # type: ignore[arg-type]  # a literal each
    told = scraped(metrics)
    assert 'portolan_placements_total{database="news",reason="own"} 2.0' in told
    of_class = 'class="articles",database="news"'
    for decision in ("answered", "stale", "unseen"):
        assert f'portolan_view_reads_total{{{of_class},decision="{decision}"}} 1.0' in told
    assert f"portolan_answer_staleness_seconds_count{{{of_class}}} 1.0" in told, "answers alone"


def test_gauges_show_what_is_there_now() -> None:
    metrics = Metrics()
    ages = {("news", "articles"): 0.4}
    active = {("GET", "http"): 3}
    metrics.connect(metrics.view_ages, lambda: ages)
    metrics.connect(metrics.active, lambda: active)
    told = scraped(metrics)
    of_class = 'class="articles",database="news"'
    assert f"portolan_view_staleness_seconds{{{of_class}}} 0.4" in told
    assert 'http_server_active_requests{http_request_method="GET",url_scheme="http"} 3.0' in told
    ages.clear()
    assert f"portolan_view_staleness_seconds{{{of_class}}}" not in scraped(metrics)


class Hand(SystemClock):
    """A clock that is put forward by hand."""

    at = 100.0

    def monotonic(self) -> float:
        return self.at


async def test_runs_are_counted_now_and_then_and_the_catalogue_may_be_away() -> None:
    metrics, clock, counted = Metrics(), Hand(), [0]

    async def count() -> tuple[Mapping[tuple[str, str], int], int]:
        counted[0] += 1
        if counted[0] > 1:
            raise Unavailable("away", system="catalogue")
        return {("news", "queued"): 2}, 1

    watch = JobRefresher(metrics, count, clock)
    for _ in range(3):
        await watch.refresh()
    assert counted == [1]
    clock.at += 60
    await watch.refresh()
    assert counted == [2]
    told = scraped(metrics)
    assert 'portolan_runs{database="news",state="queued"} 2.0' in told, "what was known last"
    assert "portolan_workers 1.0" in told


async def test_startup_live_and_ready_mean_different_things() -> None:
    verdict: dict[str, Any] = {"ready": False, "degraded": []}

    async def readiness() -> dict[str, Any]:
        return dict(verdict)

    control: Any = SimpleNamespace(readiness=readiness)
    lifecycle = Lifecycle()
    app = create_admin_app(control, CollectorRegistry(), AdminContext(lifecycle=lifecycle))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://admin") as admin:

        async def probes() -> list[int]:
            paths = ("/startup", "/live", "/ready")
            return [(await admin.get(path)).status_code for path in paths]

        assert await probes() == [503, 200, 503]
        verdict["ready"] = True
        assert await probes() == [200, 200, 200]
        verdict["ready"] = False
        assert await probes() == [200, 200, 503], "it has come up once"
        verdict["ready"] = True
        lifecycle.draining = True
        assert await probes() == [200, 200, 503], "it is about to end"
