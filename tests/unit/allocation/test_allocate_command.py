"""`portolan allocate`, and the guide to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import typer
from typer.testing import CliRunner, Result

from app.commands.allocate import allocate
from tests.unit.allocation.test_allocation import PAPER

GUIDE = (Path(__file__).parents[3] / "docs" / "allocation.md").read_text()
COMMAND = typer.Typer()
COMMAND.command()(allocate)


def block(language: str) -> str:
    match = re.search(rf"^```{language}\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)
    assert match is not None
    return match[1]


def call(folder: Path, document: dict[str, Any], *options: str) -> Result:
    file = folder / "processes.json"
    file.write_bytes(orjson.dumps(document))
    return CliRunner().invoke(COMMAND, [str(file), *options])


def test_the_guide_shows_what_the_command_prints(tmp_path: Path) -> None:
    assert orjson.loads(block("json")) == PAPER
    result = call(tmp_path, PAPER)
    assert result.exit_code == 0
    without_time = re.compile(r"[0-9.]+ s\)")
    assert without_time.sub("", result.output) == without_time.sub("", block("text"))


def test_json_for_programs(tmp_path: Path) -> None:
    report = orjson.loads(call(tmp_path, PAPER, "--format", "json", "--objective", "cost").output)
    assert (report["value"], report["price"], report["is_greedy"]) == (5, 5, False)


def test_values_of_the_chart(tmp_path: Path) -> None:
    processes = {name: {"memory_mb": 1048, "part": "api"} for name in ("api-0", "api-1")}
    machines = {name: {"memory_mb": 1100} for name in ("first", "second")}
    document = {"processes": processes, "machines": machines}
    assert call(tmp_path, document, "--format", "helm").output == block("yaml")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"machines": {"one": {"memory_mb": 4000}}}, "all machines together have 4,000 MB"),
        ({"machines": {"one": {"memory_mb": 100}}}, "the largest machine has 100 MB"),
        ({"machines": {"one": {"memory_mb": "much"}}}, "/machines/one/memory_mb: must be a number"),
    ],
)
def test_an_impossible_allocation_is_explained(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    result = call(tmp_path, {**PAPER, **changes})
    assert result.exit_code == 1
    assert reason in " ".join(result.stderr.split())
