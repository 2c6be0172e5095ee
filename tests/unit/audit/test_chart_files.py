"""Files of the chart that need no Helm: rules, dashboard, and files generated from the values."""

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


def scraped_series() -> dict[str, set[str]]:
    """Return the labels of each series of the service, by its scraped name."""
    labels_by_series = {}
    suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}
    for family, labels in metric_families():
        for suffix in suffixes.get(family.type, ("",)):
            labels_by_series[family.name + suffix] = {
                *labels,
                *({"le"} if suffix == "_bucket" else ()),
            }
    return labels_by_series


def series_in(expression: str) -> set[str]:
    names = re.sub(r"by \([^)]*\)|\{[^}]*\}", "", expression)
    return set(re.findall(r"\b(?:portolan|http|db)_\w+", names))


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rules_and_dashboard_name_existing_series(expression: str) -> None:
    series = series_in(expression)
    assert series
    assert series <= scraped_series().keys()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rules_and_dashboard_name_existing_labels(expression: str) -> None:
    (name,) = series_in(expression)
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    labels = {label.strip() for group in grouped for label in group.split(",")}
    labels |= set(re.findall(r"[{,]\s*(\w+)=", expression))
    assert labels <= scraped_series()[name] | {"pod"}


@pytest.mark.parametrize("rule", [r for g in RULES for r in g["rules"]], ids=lambda r: r["alert"])
def test_every_alert_has_a_summary(rule: Any) -> None:
    assert rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("warning", "critical")
    summary_labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    result_labels = {
        label.strip()
        for group in re.findall(r"by \(([^)]*)\)", rule["expr"])
        for label in group.split(",")
    }
    assert summary_labels <= result_labels


def test_the_schema_and_the_reference_are_those_of_the_values() -> None:
    for path, text in generated().items():
        assert path.read_text() == text, f"{path.name}: make chart-reference"


def test_no_object_of_the_values_takes_an_unknown_key() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    objects = list(objects_with_properties(schema))
    assert len(objects) > 20
    assert [object_ for object_ in objects if object_["additionalProperties"] is not False] == []


def objects_with_properties(schema: Any) -> Iterator[Any]:
    """Yield every object whose keys are described."""
    for value in schema.values() if isinstance(schema, dict) else ():
        yield from objects_with_properties(value)
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield schema


def test_the_network_policy_is_on_by_default() -> None:
    assert yaml.safe_load((CHART / "values.yaml").read_text())["networkPolicy"]["enabled"] is True


def test_the_rules_of_varnish_are_those_of_the_service() -> None:
    assert (CHART / "files" / "varnish").resolve() == CHART.parents[1] / "sketch/proxies/varnish"
