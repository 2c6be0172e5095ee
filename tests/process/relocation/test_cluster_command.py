"""`portolan cluster`, as its page shows it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from typer.testing import CliRunner, Result

from app.commands.cluster import cluster
from mediator.stores.port import SystemConfig

PAGE = Path(__file__).parents[3] / "docs" / "rebalancing.md"
QUERIES = re.findall(r"^```json\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)[0]
CHAIN = {
    "streams": {name: {"attributes": ["a", "b"], "rate": 1} for name in "RST"},
    "queries": {
        "q": {
            "relations": ["R", "S", "T"],
            "predicates": [["R.a", "S.a"], ["S.b", "T.b"]],
            "window_s": 1,
        }
    },
}


@pytest.fixture
def call(redis_config: SystemConfig, late_replies: None, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setenv("PORTOLAN_COORDINATION_URL", redis_config.url)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(cluster, [str(argument) for argument in arguments])

    return run


def tuples() -> bytes:
    rows = [
        {"stream": stream, "time_s": second + index / 10, "values": {"customer": second % 5}}
        for second in range(20)
        for index, stream in enumerate(("orders", "payments", "complaints"))
    ]
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def test_the_commands_of_the_page(call: object, tmp_path: Path) -> None:
    assert callable(call)
    name = f"shop{uuid4().hex[:8]}"
    (tmp_path / "queries.json").write_text(QUERIES)
    (tmp_path / "tuples.ndjson").write_bytes(tuples())
    assert call("declare", name, tmp_path / "queries.json", "--partitions", 8).exit_code == 0
    assert "already" in call("declare", name, tmp_path / "queries.json").output
    # Five customers in eight partitions: worker 0 has little, all of which can be moved.
    assert call("feed", name, tmp_path / "tuples.ndjson").exit_code == 0
    program = [sys.executable, "-c", "from app.cli import main; main()", "cluster", "work", name]
    process = subprocess.Popen(program, env=dict(os.environ))
    try:
        options = ("--strategy", "mslb", "--sender", "worker:0", "--receiver", "worker:1")
        expected = 5 * 4**3
        while len(call("results", name).output.splitlines()) < expected:
            time.sleep(0.1)
        assert call("move", name, *options, "--amount", 1_000).exit_code == 0
        while True:
            document = orjson.loads(call("show", name).output)
            if document["relocations"] and document["relocations"][0]["phase"] == "done":
                break
            time.sleep(0.1)
    finally:
        process.terminate()
        assert process.wait() == 0
    assert document["relocations"][0]["partitions"] == [0, 2, 4, 6]
    assert document["workers"]["worker:0"]["orders"]["unhappy"]
    emitted = [orjson.loads(line) for line in call("results", name).output.splitlines()]
    assert (
        len({orjson.dumps(result["numbers"], option=orjson.OPT_SORT_KEYS) for result in emitted})
        == expected
    )
    assert len(emitted) == expected
    assert emitted[0]["query"] == "unhappy"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("feed", "none", "{file}"), "There is no cluster none"),
        (("show", "none"), "There is no cluster none"),
        (("declare", "chain", "{file}"), "cannot be moved by itself"),
        (("declare", "No name", "{file}"), "name"),
        (("work", "none", "worker:0"), "There is no cluster none"),
    ],
)
def test_impossible_commands_are_explained(
    call: object, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    assert callable(call)
    file = tmp_path / "queries.json"
    file.write_bytes(orjson.dumps(CHAIN))
    result = call(*(argument.format(file=file) for argument in arguments))
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    assert "Traceback" not in result.output
