"""The tables of facts in the documentation: settings, metrics, problems, routes, capabilities.

The rows, their order and their facts come from the code. The last cells of a row, its meaning in
prose, are written in the page and stay; those of a new row come from the code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import orjson
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.admin.application import create_admin_app
from app.api.openapi.document import data_paths
from app.http.problems import PROBLEM_TYPES
from app.settings.access import AccessSettings
from app.settings.main import (
    CacheSettings,
    HttpSettings,
    JobSettings,
    MediatorSettings,
    SystemSettings,
)
from app.settings.purge import PurgeTarget
from app.settings.telemetry import TelemetrySettings
from app.telemetry.metrics import Metrics
from mediator.model.operators import APPLICABLE, Operator
from mediator.schema.annotations import LEVELS, Metric
from mediator.schema.types import FieldType

__all__ = ["NO_PROSE", "TABLES", "FactsTable", "Row", "metric_families", "with_problem_sections"]

_METHODS: Final = ("get", "head", "put", "post", "patch", "delete")
NO_PROSE: Final = "\nNot documented yet.\n\n"
"""The initial section of a new type of problem."""
_CELL: Final = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Row:
    """A row: its first cell, which names it, its facts, and its meaning if the page has none."""

    name: str
    facts: Sequence[str] = ()
    meaning: str = ""


@dataclass(frozen=True)
class FactsTable:
    """The first table below a heading of a page."""

    page: str
    heading: str
    columns: Sequence[str]
    rows: Sequence[Row]

    def fill(self, text: str) -> str:
        """Return a page with the table up to date.

        Raises:
            ValueError: The page has no such heading, or no table below it.
        """
        lines = text.split("\n")
        try:
            start = next(
                at
                for at in range(lines.index(self.heading), len(lines))
                if lines[at].startswith("|")
            )
        except (ValueError, StopIteration) as error:
            raise ValueError(f"{self.page} has no table below {self.heading!r}") from error
        end = next(at for at in range(start, len(lines)) if not lines[at].startswith("|"))
        return "\n".join([*lines[:start], *self._lines(lines[start + 2 : end]), *lines[end:]])

    def _lines(self, page_rows: Iterable[str]) -> Iterator[str]:
        prose = dict(self._prose(page_rows))
        yield _line(self.columns)
        yield "|" + "---|" * len(self.columns)
        for row in self.rows:
            cells = [row.name, *row.facts, *prose.get(row.name, [row.meaning])]
            yield _line([*cells, *[""] * (len(self.columns) - len(cells))])

    def _prose(self, page_rows: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
        """Yield the page's prose of each row."""
        facts = len(self.rows[0].facts)
        for line in page_rows:
            name, *cells = [cell.strip() for cell in _CELL.split(line)[1:-1]]
            yield name, cells[facts:]


def _line(cells: Iterable[str]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _code(text: object) -> str:
    return f"`{text}`"


def _settings(model: type[BaseModel], prefix: str) -> list[Row]:
    return [
        Row(_code(prefix + (name.upper() if prefix else name)), (_default(field),), _about(field))
        for name, field in model.model_fields.items()
    ]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None:
        return "none"
    if isinstance(default, str | Path):
        return _code(default)
    if isinstance(default, float) and default.is_integer():
        default = int(default)
    return _code(orjson.dumps(default).decode())


def _about(field: FieldInfo) -> str:
    about = (field.description or "").removesuffix(".")
    return about[:1].lower() + about[1:]


def metric_families() -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Yield each metric family of the service, and its labels."""
    # The registry yields samples; a metric without samples shows its labels nowhere else.
    for collector in Metrics().registry._collector_to_names:  # noqa: SLF001
        labels = tuple(getattr(collector, "_labelnames", ()))
        yield from ((family, labels) for family in collector.collect())


def _metrics() -> Iterator[Row]:
    for family, labels in metric_families():
        name = family.name + ("_total" if family.type == "counter" else "")
        yield Row(_code(name), (family.type, ", ".join(map(_code, labels))), family.documentation)


def _data_routes() -> Iterator[Row]:
    for path, operations in data_paths().items():
        by_summary: dict[str, list[str]] = {}
        for method in _METHODS:
            if method in operations:
                by_summary.setdefault(operations[method]["summary"], []).append(method.upper())
        for summary, methods in by_summary.items():
            yield Row(_code(f"{', '.join(methods)} {path}"), (), summary)


@cache
def _admin_paths() -> Mapping[str, Any]:
    control: Any = SimpleNamespace(readiness=None)
    paths: Mapping[str, Any] = create_admin_app(control, CollectorRegistry()).openapi()["paths"]
    return paths


def _admin_routes(tag: str) -> Iterator[Row]:
    for path, operations in _admin_paths().items():
        for method, operation in operations.items():
            if tag in operation["tags"]:
                yield Row(_code(f"{method.upper()} {path}"), (), operation["summary"])


def _capabilities() -> Iterator[Row]:
    for capability, levels in LEVELS.items():
        facts = ["yes" if level in levels else "" for level in ("field", "class", "database")]
        yield Row(_code(capability), facts)


def _operators() -> Iterator[Row]:
    for operator in Operator:
        types = [type_ for type_ in FieldType if type_ in APPLICABLE[operator]]
        yield Row(_code(operator), ("all" if len(types) == len(FieldType) else ", ".join(types),))


def _annotated_metrics() -> Iterator[Row]:
    for metric in Metric:
        yield Row(_code(metric), ("smaller" if metric.small_is_good else "larger",))


_SETTINGS: Final[Mapping[str, type[BaseModel]]] = {
    "## HTTP": HttpSettings,
    "## Logs, metrics and traces": TelemetrySettings,
    "## Access": AccessSettings,
    "## Databases": MediatorSettings,
    "## Caches": CacheSettings,
    "## Jobs": JobSettings,
}
_ADMIN: Final = {
    "## Health": "health",
    "## Schemas": "schemas",
    "## Pinned versions": "pinned versions",
    "## Systems": "systems",
    "## Tenants": "tenants",
    "## Placement": "placements",
    "## Materialised views": "views",
    "## Probes": "probes",
    "## Integrity": "integrity",
    "## Copies": "copies",
    "## The cache sketch": "sketch",
}
_SETTING: Final = ("variable", "default", "meaning")
_KEY: Final = ("key", "default", "meaning")

TABLES: Final[Sequence[FactsTable]] = (
    *(
        FactsTable("settings.md", heading, _SETTING, _settings(model, "PORTOLAN_"))
        for heading, model in _SETTINGS.items()
    ),
    FactsTable("settings.md", "## A system", _KEY, _settings(SystemSettings, "")),
    FactsTable("settings.md", "## A cache that is purged", _KEY, _settings(PurgeTarget, "")),
    FactsTable("metrics.md", "# Metrics", ("metric", "kind", "labels", "meaning"), [*_metrics()]),
    FactsTable("data-api.md", "# The data API", ("request", "does"), [*_data_routes()]),
    *(
        FactsTable("admin-api.md", heading, ("request", "does"), [*_admin_routes(tag)])
        for heading, tag in _ADMIN.items()
    ),
    FactsTable(
        "schema.md",
        "### Required capabilities: `require`",
        ("capability", "field", "class", "database", "means"),
        [*_capabilities()],
    ),
    FactsTable(
        "schema.md",
        "### Metrics: `metric`",
        ("metric", "better", "unit"),
        [*_annotated_metrics()],
    ),
    FactsTable(
        "schema.md", "## Operators", ("operator", "on", "argument", "does"), [*_operators()]
    ),
)
"""All tables of facts."""


def with_problem_sections(text: str) -> str:
    """Return docs/problems.md with exactly one section for each type of problem."""
    head, *sections = re.split(r"^### ", text, flags=re.MULTILINE)
    prose = {re.findall(r"[\w-]+", section)[0]: section.partition("\n")[2] for section in sections}
    return head + "".join(
        f"### `{kind.slug}` · {kind.status}\n{prose.get(kind.slug, NO_PROSE)}"
        for kind in PROBLEM_TYPES
    )
