"""`portolan standing`, and the guide to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import orjson
import pytest
from typer.testing import CliRunner, Result

from app.commands.standing import standing
from tests.unit.standing.papers_queries import EXAMPLE_1, EXAMPLE_2

GUIDE = Path(__file__).parents[3] / "docs" / "standing-queries.md"
TUPLES: list[dict[str, Any]] = [
    {"stream": "R", "time_s": 10.0, "values": {"a": 1}},
    {"stream": "T", "time_s": 10.2, "values": {"b": 2, "c": 3}},
    {"stream": "S", "time_s": 10.6, "values": {"a": 1, "b": 2}},
    {"stream": "U", "time_s": 10.7, "values": {"c": 3}},
]


def blocks(language: str) -> list[str]:
    matches = re.findall(
        rf"^```{language}\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE
    )
    return [str(match) for match in matches]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "queries.json"
    path.write_bytes(orjson.dumps(EXAMPLE_1))
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "tuples.ndjson"
    path.write_bytes(b"".join(orjson.dumps(tuple_) + b"\n" for tuple_ in TUPLES))
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(standing, [str(argument) for argument in arguments])


def test_the_guide_has_the_queries_that_are_tested() -> None:
    assert orjson.loads(blocks("json")[0]) == EXAMPLE_1


def test_the_guide_shows_what_the_command_prints(file: Path) -> None:
    output = call("plan", file, "--no-intermediates").stdout
    timeless = re.sub(r"\d+\.\d+ s\)", "0.01 s)", output)
    assert timeless == blocks("text")[0]


def test_the_guide_has_tuples_and_their_results(file: Path, log: Path) -> None:
    tuples, results = blocks("ndjson")
    assert [orjson.loads(line) for line in tuples.splitlines()] == TUPLES
    assert call("run", file, log).stdout == results


@pytest.mark.parametrize(("mode", "cost"), [("individual", 950), ("greedy", 875), ("shared", 800)])
def test_a_plan_as_json_has_the_cost_of_each_hop(file: Path, mode: str, cost: float) -> None:
    output = call("plan", file, "--no-intermediates", "--mode", mode, "--format", "json").stdout
    report = orjson.loads(output)
    assert report["cost"] == cost
    assert sum(hop["cost"] for plan in report["plans"] for hop in plan["hops"]) == cost


def test_a_plan_says_which_queries_share_a_store(file: Path) -> None:
    report = orjson.loads(call("plan", file, "--format", "json").stdout)
    queries = {store["store"]: store["queries"] for store in report["plans"][0]["stores"]}
    assert queries["S⋈T"] == ["q1", "q2"]


def test_a_drawing_has_each_hop_and_shared_ones_apart(file: Path) -> None:
    root = ET.fromstring(call("plan", file, "--format", "svg", "--no-intermediates").stdout)
    paths = [element for element in root.iter() if element.tag.endswith("path")]
    assert len(paths) == 10
    assert sum("shared" in element.get("class", "") for element in paths) == 2


def test_layouts_are_named_by_their_attribute(tmp_path: Path) -> None:
    path = tmp_path / "queries.json"
    path.write_bytes(orjson.dumps(EXAMPLE_2))
    output = call("plan", path, "--no-intermediates", "--replicas").stdout
    assert re.search(r"S\[[bc]\]", output)


@pytest.mark.parametrize("mode", ["individual", "greedy", "shared"])
@pytest.mark.parametrize("option", ["--intermediates", "--no-intermediates"])
def test_a_run_prints_each_result_once_in_every_mode(
    file: Path, log: Path, mode: str, option: str
) -> None:
    result = call("run", file, log, "--mode", mode, option)
    queries = [orjson.loads(line)["query"] for line in result.stdout.splitlines()]
    assert sorted(queries) == ["q1", "q2"]
    assert "tuples/s, " in result.stderr


def test_a_mistake_is_named_with_its_location(tmp_path: Path) -> None:
    path = tmp_path / "queries.json"
    path.write_bytes(orjson.dumps({**EXAMPLE_1, "parallelism": 0}))
    result = call("plan", path)
    assert result.exit_code == 1
    assert "/parallelism: must be an integer from 1" in result.stderr


BAD_LINES = {
    "no JSON": (b"{", "line 1 is not JSON"),
    "unknown stream": (b'{"stream": "Z", "time_s": 1, "values": {}}', "there is no stream Z"),
    "unknown attribute": (
        b'{"stream": "R", "time_s": 1, "values": {"z": 1}}',
        "R has no attribute z",
    ),
    "no scalar": (b'{"stream": "R", "time_s": 1, "values": {"a": []}}', "must be a string"),
    "no time": (b'{"stream": "R", "time_s": true, "values": {}}', "must be a number"),
    "far too long": (b'"' + b"x" * 2**21 + b'"', "more than 1,048,576 bytes"),
    "no object": (b"[]", "must be an object"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_line_that_is_no_tuple_ends_the_run_with_its_number(
    name: str, file: Path, tmp_path: Path
) -> None:
    line, detail = BAD_LINES[name]
    path = tmp_path / "tuples.ndjson"
    path.write_bytes(line + b"\n")
    result = call("run", file, path)
    assert result.exit_code == 1
    assert "line 1" in result.stderr
    assert detail in result.stderr


def test_an_empty_log_has_no_results(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuples.ndjson"
    path.write_bytes(b"")
    result = call("run", file, path)
    assert (result.exit_code, result.stdout) == (0, "")
