"""The components of the pages: sentences, figures, files, and a page that another package adds."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from jinja2 import UndefinedError
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from app.admin.application import create_admin_app
from app.admin.pages import schema_map, series, site
from app.admin.pages.page import Page
from app.admin.pages.site import PAGES, Assets, mount_pages
from app.telemetry.recent_events import RecentEvents
from mediator.base.observation import PlacementDecided, RedoRecovered, RequestFinished
from mediator.placement.candidates import Candidate
from mediator.placement.decide import Decision, decide
from mediator.placement.explain import explain, summarise
from mediator.placement.figures import seconds
from mediator.scaling.advisor import Advisor
from mediator.scaling.energy import Energy, StatedPowers
from mediator.schema.annotations import Capability, Metric
from mediator.schema.parse import parse_schema

ROOT = Path(__file__).parents[3]
DOCUMENTATION = (ROOT / "docs" / "pages.md").read_text()


class Plane:
    """The members of a control plane that pages need."""

    def __init__(self, name: str = "news") -> None:
        self.name = name
        self.energy = Energy()

    async def databases(self) -> list[dict[str, Any]]:
        return [{"name": self.name, "mode": "mixed", "version": 1_234, "classes": []}]

    async def readiness(self) -> dict[str, Any]:
        return {"ready": True, "degraded": [], "systems": {}}

    async def systems(self) -> list[dict[str, Any]]:
        return []

    async def violations(self) -> list[dict[str, Any]]:
        return []

    proposals = violations

    async def scaling(self) -> dict[str, Any]:
        clock: Any = SimpleNamespace(monotonic=lambda: 0.0)
        return Advisor(list, dict, clock, energy=self.energy).advise()


def module_of(folder: Path) -> ModuleType:
    """Write the module that the documentation prints, and load it."""
    (python,) = re.findall(r"```python\n(.*?)```", DOCUMENTATION, re.DOTALL)
    (html,) = re.findall(r"```html\n(.*?)```", DOCUMENTATION, re.DOTALL)
    (folder / "epochs.py").write_text(python)
    (folder / "epochs.html").write_text(html)
    spec = importlib.util.spec_from_file_location("epochs", folder / "epochs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def get(
    plane: Plane, *pages: Page, path: str, recent: RecentEvents | None = None
) -> httpx.Response:
    app = FastAPI()
    app.state.control = plane
    app.state.metrics = CollectorRegistry()
    app.state.recent_events, app.state.request_history, app.state.refresh = recent, None, None
    mount_pages(app, (*PAGES, *pages))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.get(path)


async def test_the_printed_page_joins_the_others(tmp_path: Path) -> None:
    answer = await get(Plane(), module_of(tmp_path).PAGE, path="/epochs")
    assert answer.status_code == 200
    assert "<li>news: 1,234</li>" in answer.text
    assert '<a href="/epochs" aria-current="page">Epochs</a>' in answer.text
    assert "default-src 'self'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/epochs"])
async def test_names_are_escaped_in_every_template(tmp_path: Path, path: str) -> None:
    answer = await get(Plane("<script>x</script>"), module_of(tmp_path).PAGE, path=path)
    assert "<script>x" not in answer.text
    assert "&lt;script&gt;x" in answer.text


async def test_a_template_with_an_undefined_name_is_an_error(tmp_path: Path) -> None:
    page = module_of(tmp_path).PAGE
    (tmp_path / "epochs.html").write_text("{{ nothing }}")
    with pytest.raises(UndefinedError):
        await get(Plane(), page, path="/epochs")


async def test_the_overview_shows_energy_where_powers_are_stated() -> None:
    assert "stated power" not in (await get(Plane(), path="/")).text
    plane = Plane()
    plane.energy = Energy(service=StatedPowers(idle_w=20.0, peak_w=60.0))
    text = (await get(plane, path="/")).text
    assert "20.0 to 60.0 W" in text
    assert "states the power; it is not measured" in text


async def test_the_overview_shows_which_step_of_a_committed_write_is_refused() -> None:
    recent = RecentEvents()
    reason = "redis refuses a step of a committed write to articles/a: it is full."
    recent.observe(RedoRecovered("news", "i", "refused", reason))
    assert f"news: {reason}" in (await get(Plane(), path="/", recent=recent)).text


async def test_the_overview_counts_all_violations_and_lists_the_latest() -> None:
    class Violated(Plane):
        async def violations(self) -> list[dict[str, Any]]:
            node = {"database": "news", "system": "redis", "metric": "read_latency"}
            return [
                {**node, "node": f"articles.f{n}", "measured": 0.5, "phase": "ended"}
                for n in range(15)
            ]

    text = (await get(Violated(), path="/")).text
    assert "<strong>15</strong><span>recent violations</span>" in text
    assert text.count("articles.f") == 12
    assert "The first 12 of 15." in text


async def test_empty_pages_say_what_to_do_first() -> None:
    class Empty(Plane):
        async def databases(self) -> list[dict[str, Any]]:
            return []

    for path in ("/", "/map", "/what-if", "/jobs", "/data"):
        text = (await get(Empty(), path=path)).text
        assert 'class="first"' in text
        assert "curl -X PUT" in text


def test_pages_are_not_among_the_routes_of_the_api() -> None:
    plane: Any = Plane()
    paths = create_admin_app(plane, CollectorRegistry()).openapi()["paths"]
    assert not {"/map", "/what-if", "/"} & set(paths)


def make_decision(throughput: float = 12_000) -> Decision:
    annotations = [
        {"require": "atomic_updates"},
        {"metric": "write_throughput", "goal": 10_000, "weight": 3},
        {"metric": "write_latency", "utility": {"shape": "step", "points": [[0, 1], [0.1, 0]]}},
    ]
    fields = {"hits": {"type": "integer", "annotations": annotations}}
    schema = parse_schema("news", {"classes": {"articles": {"fields": fields}}})
    able = frozenset({Capability.ATOMIC_UPDATES})
    systems = [
        Candidate("fast", able, {Metric.WRITE_THROUGHPUT: 25_000, Metric.WRITE_LATENCY: 0.001}),
        Candidate("slow", able, {Metric.WRITE_THROUGHPUT: throughput, Metric.WRITE_LATENCY: 0.2}),
        Candidate("dumb", frozenset(), {}),
    ]
    return decide(schema, systems)


def make_explanation() -> dict[str, Any]:
    return explain(make_decision(), "articles.hits")


class Placed(Plane):
    """A control plane with one decision, and a supposed one."""

    async def schema(self, _: str) -> Any:
        hits = {"type": "integer", "annotations": [{"metric": "write_throughput", "goal": 10_000}]}
        return SimpleNamespace(
            document={
                "annotations": [],
                "classes": {"articles": {"annotations": [], "fields": {"hits": hits}}},
            }
        )

    async def overrides(self, _: str) -> list[dict[str, Any]]:
        return []

    async def summary(self, _: str) -> dict[str, Any]:
        return summarise(make_decision())

    async def explain(self, _: str, *node: str) -> dict[str, Any]:
        wait = {"operation": "read", "system": "fast", "wait_s": 0.0025, "why": "It keeps up."}
        return {**explain(make_decision(), ".".join(node) or "*"), "batching": [wait]}

    async def what_if(self, *_: Any) -> dict[str, Any]:
        why = make_decision(1e6).why("articles.hits")
        return {
            "nodes": {},
            "moves": [{"node": "articles.hits", "from": "fast", "to": "slow", "why": why}],
        }


async def test_pages_explain_a_decision_by_its_sentence() -> None:
    sentence = make_decision().why("articles.hits")
    assert sentence == (
        "articles.hits requires atomic_updates: fast writes 2.08 times as fast as slow"
        " (25,000/s, 12,000/s), and write throughput is 75 % of the score;"
        " out: dumb (lacks atomic_updates, required by articles.hits)."
    )
    map_ = (await get(Placed(), path="/map?node=articles.hits")).text
    assert f"It is on fast because {sentence}" in map_
    assert "waits up to 2.5 ms. It keeps up." in map_
    supposed_sentence = make_decision(1e6).why("articles.hits")
    assert "slow writes 40 times as fast as fast" in supposed_sentence
    assert supposed_sentence in (await get(Placed(), path="/what-if")).text


def test_a_decision_in_words() -> None:
    explanation = make_explanation()
    throughput, latency = schema_map.reasons(explanation)
    assert throughput == (
        "Write throughput (goal 10,000/s; 75 % of the score):"
        " fast has 25,000/s, 2.5 times the goal; slow has 12,000/s, 1.2 times the goal."
    )
    assert latency == (
        "Write latency (by a utility of at most 1; 25 % of the score): fast has 1 ms, worth 1;"
        " slow has 200 ms, worth 0."
    )
    assert schema_map.margin(explanation).startswith(
        "fast scores 2.12 and slow, the runner-up, 0.9: 136 % ahead"
    )


def test_the_cost_of_a_required_system() -> None:
    required = {"required_system": {"system": "slow", "node": "*"}, "margin": None}
    assert schema_map.margin({**make_explanation(), **required, "system": "slow"}) == (
        "By today's scores fast leads with 2.12 to 0.9."
    )
    assert schema_map.margin({**make_explanation(), **required}) == (
        "fast is required, and none scores higher."
    )


def test_flips_are_listed_nearest_first() -> None:
    flips = schema_map.flips(make_explanation())
    assert flips[0] == "the write throughput of slow rose to 28,333/s (it is 12,000/s)"
    assert "the write throughput of fast fell to 8,667/s (it is 25,000/s)" in flips


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0, "0 s"), (3.5e-5, "35 µs"), (0.0123, "12.3 ms"), (9, "9 s"), (600, "10 min")],
)
def test_durations(value: float | None, text: str) -> None:
    assert seconds(value) == text


def test_long_values_are_cut_and_show_their_length() -> None:
    text = site.FILTERS["cut"](["x" * 1_000])
    assert len(text) < 200
    assert text.endswith("… (1,004 characters)")


def test_series_are_those_of_prometheus() -> None:
    registry = CollectorRegistry()
    ttls = Histogram(
        "portolan_cache_ttl_seconds", "", ["database", "class"], buckets=(1, 2), registry=registry
    )
    for ttl_s in (0.5, 1.5, 1.7, 9):
        ttls.labels("news", "articles").observe(ttl_s)
    purges = Counter("portolan_purges", "", ["purger", "outcome"], registry=registry)
    purges.labels("edge", "sent").inc(3)
    assert series.ttls(registry) == {"news/articles": [("1.0", 1), ("2.0", 2), ("+Inf", 1)]}
    assert series.purges(registry) == {"edge": {"sent": 3}}


def test_series_of_tenants_and_runs() -> None:
    registry = CollectorRegistry()
    objects = Gauge("portolan_tenant_objects", "", ["tenant"], registry=registry)
    objects.labels("acme").set(7)
    refusals = Counter("portolan_tenant_refusals", "", ["tenant", "limit"], registry=registry)
    refusals.labels("acme", "rate").inc(2)
    refusals.labels("other", "rate").inc(9)
    runs = Gauge("portolan_runs", "", ["database", "state"], registry=registry)
    for database, state, count in (("news", "done", 2), ("shop", "done", 1), ("shop", "failed", 0)):
        runs.labels(database, state).set(count)
    assert series.of_tenant(registry, "acme") == {"objects": 7, "refusals": {"rate": 2}}
    assert series.of_tenant(registry, "new") == {"objects": None, "refusals": {}}
    assert series.runs(registry) == {"done": 3}


def test_frequent_events_are_not_kept_among_the_latest() -> None:
    recent = RecentEvents()
    for epoch in range(60):
        recent.observe(PlacementDecided("news", epoch, {}, {}))
        recent.observe(RequestFinished("GET", "/", 200, 0.1))
    latest = [event.observation for event in recent.events]
    assert len(latest) == 50
    assert latest[0] == PlacementDecided("news", 59, {}, {})


def test_other_content_has_another_address(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("a{}")
    before = Assets(tmp_path).address("a.css")
    assert Assets(tmp_path).address("a.css") == before
    (tmp_path / "b.css").write_text("b{}")
    assert Assets(tmp_path).address("a.css") != before


def test_templates_and_files_are_in_the_wheel(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("templates", "static"):
        files = (ROOT / "app" / "admin" / "pages" / folder).rglob("*.*")
        assert {path.relative_to(ROOT).as_posix() for path in files} <= names
