"""`portolan continuous`, and the guide to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest
from typer.testing import CliRunner, Result

from app.commands.continuous import continuous
from mediator.continuous.parser import parse_query, parse_tuple
from mediator.continuous.planning import reference_constants
from tests.unit.continuous.queries import NEAR_PEAK, averages

GUIDE = Path(__file__).parents[3] / "docs" / "continuous-queries.md"


def blocks(language: str) -> list[str]:
    matches = re.findall(
        rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE
    )
    return [str(match) for match in matches]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "peaks.json"
    path.write_bytes(orjson.dumps(NEAR_PEAK))
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(continuous, [str(argument) for argument in arguments])


def test_the_guide_shows_what_the_command_prints(file: Path) -> None:
    assert orjson.loads(blocks("json")[0]) == NEAR_PEAK
    output = re.sub(r"\d+\.\d ms", "1.0 ms", call("plan", file).stdout)
    assert output == blocks("text")[0]


def test_the_guide_has_tuples_of_its_query() -> None:
    streams = parse_query(NEAR_PEAK).streams
    for line in blocks("ndjson")[0].splitlines():
        assert parse_tuple(orjson.loads(line), streams)


def test_a_plan_is_reported_as_json(file: Path) -> None:
    report = orjson.loads(call("plan", file, "--format", "json").stdout)
    assert report["operators"][-1]["name"] == "counts"
    slower = orjson.loads(call("plan", file, "--rate", 0.1, "--format", "json").stdout)
    assert slower["cost"]["total"] < report["cost"]["total"]


def test_operators_that_share_no_core_have_a_lower_bottleneck(file: Path) -> None:
    shared = orjson.loads(call("plan", file, "--format", "json").stdout)["cost"]
    alone = orjson.loads(call("plan", file, "--pipelined", "--format", "json").stdout)["cost"]
    assert shared["bottleneck"] == shared["total"]
    assert alone["bottleneck"] < alone["total"]


def test_a_sweep_is_printed_and_drawn(file: Path) -> None:
    output = call("plan", file, "--sweep", "0.01:10:8").stdout
    assert len(re.findall(r"^ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +\w", output, re.MULTILINE)) == 8
    assert call("plan", file, "--sweep", "1,2", "--format", "json").exit_code == 0
    drawing = ET.fromstring(call("plan", file, "--sweep", "0.01:10:8", "--format", "svg").stdout)
    curves = [path.get("class") for path in drawing.iter("{http://www.w3.org/2000/svg}path")]
    assert {"best", "all_spark", "all_database", "limit"} <= {*curves}


def test_a_drawing_has_all_operators(file: Path) -> None:
    drawing = ET.fromstring(call("plan", file, "--format", "svg").stdout)
    texts = {element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")}
    assert NEAR_PEAK["operators"].keys() <= texts


@pytest.mark.parametrize(
    "sweep", ["1", "0,1", "1:2", "1:2:1", "1:0:5", "a", "1:2:999999", "1:nan:3"]
)
def test_an_invalid_sweep_is_refused(file: Path, sweep: str) -> None:
    assert call("plan", file, "--sweep", sweep).exit_code == 2


def test_mistakes_are_located(tmp_path: Path, file: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(orjson.dumps({**NEAR_PEAK, "root": "count"}))
    result = call("plan", path)
    assert result.exit_code == 1
    assert (
        '/root: must be the name of operators that there are; did you mean "counts"?.'
        in result.stderr
    )
    costs: dict[str, Any] = {**reference_constants().to_json(), "statement": "much"}
    path.write_bytes(orjson.dumps(costs))
    assert "/statement" in call("plan", file, "--costs", path).stderr
    assert call("plan", file, "--trigger-s", 1.5).exit_code == 2


def test_a_query_that_must_be_divided(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_bytes(orjson.dumps(averages(list(range(1, 11)))))
    assert call("plan", path, "--pipelined").exit_code == 0
    result = call("plan", path, "--no-divide", "--no-reorder", "--pipelined")
    assert "more than 20,000 plans" in result.stderr
