"""Files of the chart that need no Helm: rules, dashboard, and what is generated of the values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from docs.facts import metric_families
from helm.reference import CHART, generated

RULES = yaml.safe_load((CHART / "files" / "rules.yaml").read_text())["groups"]
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
EXPRESSIONS = [rule["expr"] for group in RULES for rule in group["rules"]] + [
    target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]
]


def scraped() -> dict[str, set[str]]:
    """Labels of each series that the service shows, by the name that is scraped."""
    found = {}
    ends = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
    for family, labels in metric_families():
        for end in ends.get(family.type, ("",)):
            found[family.name + end] = {*labels, *({"le"} if end == "_bucket" else ())}
    return found


def series_in(expression: str) -> set[str]:
    bare = re.sub(r"by \([^)]*\)|\{[^}]*\}", "", expression)
    return set(re.findall(r"\b(?:portolan|http|db)_\w+", bare))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rules_and_dashboard_name_series_that_there_are(expression: str) -> None:
    named = series_in(expression)
    assert named
    assert named <= scraped().keys()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rules_and_dashboard_name_labels_that_there_are(expression: str) -> None:
    (name,) = series_in(expression)
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    labels = {label.strip() for group in grouped for label in group.split(",")}
    labels |= set(re.findall(r"[{,]\s*(\w+)=", expression))
    assert labels <= scraped()[name] | {"pod"}


@pytest.mark.parametrize("rule", [r for g in RULES for r in g["rules"]], ids=lambda r: r["alert"])
def test_every_alert_has_a_summary(rule: Any) -> None:
    assert rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    kept = {
        label.strip()
        for group in re.findall(r"by \(([^)]*)\)", rule["expr"])
        for label in group.split(",")
    }
    assert shown <= kept


def test_the_schema_and_the_reference_are_those_of_the_values() -> None:
    for path, text in generated().items():
        assert path.read_text() == text, f"{path.name}: make chart-reference"


def test_no_object_of_the_values_takes_an_unknown_key() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    closed = list(described(schema))
    assert len(closed) > 20
    assert [each for each in closed if each["additionalProperties"] is not False] == []


def described(schema: Any) -> Iterator[Any]:
    """Every object whose keys are described."""
    for below in schema.values() if isinstance(schema, dict) else ():
        yield from described(below)
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield schema


def test_the_network_policy_is_on_by_default() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]["enabled"] is True


def test_the_rules_of_varnish_are_those_of_the_service() -> None:
    assert (CHART / "files" / "varnish").resolve() == CHART.parents[1] / "sketch/proxies/varnish"
