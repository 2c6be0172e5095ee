"""The guide to admission control: its rules work, and it names the whole vocabulary."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from pathlib import Path
from random import Random

import pytest

from app.admin.api.admission import DryRunDocument
from mediator.admission.engine import parse_rules
from mediator.admission.evaluation import Event, Snapshot
from mediator.admission.installation import INSTALLATION
from mediator.admission.syntax import Options

GUIDE = (Path(__file__).parents[3] / "docs/admission.md").read_text()


def block(language: str, number: int = 0) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)
    return str(blocks[number])


def test_its_rules_behave_as_documented() -> None:
    rules = parse_rules(block("cadl"), INSTALLATION)
    document = DryRunDocument.model_validate(json.loads(block("json")))
    assert document.snapshot is not None
    run = document.events[0].run
    assert run is not None
    event = Event(document.events[0].event, {"run": run.model_dump()})
    snapshot = Snapshot(document.snapshot.figures, {"run": [run.model_dump()]})
    decisions = rules.decide(event, snapshot, Random(document.seed))
    assert [decision.rule.number for decision in decisions if decision.holds] == [1]


@pytest.mark.parametrize(
    ("load", "fires"), [(62.9, True), (63, False), (66, False), (69, False), (70, False)]
)
def test_its_hysteresis_is_as_documented(load: float, fires: bool) -> None:
    rules = parse_rules(block("cadl"), INSTALLATION)
    held = {"state": "INACTIVE", "prio": 1}
    snapshot = Snapshot({"workerCpuLoad": load}, {"run": [held]})
    results = [decision.holds for decision in rules.decide(Event("Timer"), snapshot, Random(1))]
    assert any(results) is fires


@pytest.mark.parametrize(
    ("name", "paused_s", "fires"),
    [("orders", 0, True), ("orders", 5, False), ("reports", 0, False)],
)
def test_its_flow_of_reports_yields_to_others(name: str, paused_s: float, fires: bool) -> None:
    rules = parse_rules(block("cadl", 1), INSTALLATION)
    reports = {"id": "r", "name": "reports", "paused_s": paused_s}
    event = Event("FlowLate", {"flow": {"id": "o", "name": name}})
    snapshot = Snapshot(subjects={"flow": [reports]})
    (decision,) = rules.decide(event, snapshot, Random(1))
    assert [action.arguments for action in decision.actions] == [(reports, 30)] * fires


@pytest.mark.parametrize(
    ("late", "paused_s", "fired"),
    [(1, 0, [1]), (1, 5, []), (0, 5, [2]), (0, 0, [1])],
)
def test_its_costly_query_waits_while_others_are_late(
    late: int, paused_s: float, fired: list[int]
) -> None:
    rules = parse_rules(block("cadl", 2), INSTALLATION)
    matches = {"name": "matches", "paused_s": paused_s, "late": 0}
    snapshot = Snapshot(subjects={"query": [matches, {"name": "a", "paused_s": 0, "late": late}]})
    events = Event("QueryLate", {"query": matches}), Event("Timer")
    decisions = [
        decision for event in events for decision in rules.decide(event, snapshot, Random(1))
    ]
    assert [decision.rule.number for decision in decisions if decision.holds] == fired


@pytest.mark.parametrize(
    "name",
    [
        *INSTALLATION.events,
        *INSTALLATION.constants,
        *INSTALLATION.functions,
        *INSTALLATION.actions,
        *(name for attributes in INSTALLATION.subjects.values() for name in attributes),
        *(option.name for option in fields(Options)),
    ],
)
def test_it_names_the_whole_vocabulary(name: str) -> None:
    assert re.search(rf"`{name}\b", GUIDE)


def test_each_option_has_a_row_with_its_default() -> None:
    for option in fields(Options):
        assert f"| `{option.name}` | {option.default:g} |" in GUIDE
