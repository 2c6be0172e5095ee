"""`portolan demo`, and the APIs at its addresses while it runs."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from app.commands.demo.newspaper import SCHEMA

COMMAND = (sys.executable, "-c", "from app.cli import main; main()", "demo")
UPDATE = {"content-type": "application/vnd.portolan.update+json"}


@dataclass
class Demo:
    """A demo that has printed everything and is still up."""

    process: Process
    directory: Path
    output: str

    @property
    def data(self) -> str:
        return self._address("Data API")

    @property
    def admin(self) -> str:
        return self._address("Admin API")

    def _address(self, label: str) -> str:
        match = re.search(rf"{label} +(http://\S+/v1/)", self.output)
        assert match, self.output
        return match[1]


async def start_demo(directory: Path, *options: str) -> Process:
    defaults = ("--port", "0", "--admin-port", "0", "--seconds", "1")
    location = ("--data-dir", str(directory))
    return await asyncio.create_subprocess_exec(
        *COMMAND, *location, *defaults, *options, stdout=PIPE, stderr=STDOUT
    )


async def output_until(process: Process, end: str) -> str:
    assert process.stdout is not None
    output = ""
    while end not in output:
        line = await process.stdout.readline()
        assert line, output
        output += line.decode()
    return output


@pytest.fixture(scope="module")
async def demo() -> AsyncIterator[Demo]:
    directory = Path(tempfile.mkdtemp(prefix="portolan-demo-"))
    process = await start_demo(directory)
    try:
        yield Demo(process, directory, await output_until(process, "until Ctrl-C"))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
        await process.communicate()
        shutil.rmtree(directory)


async def test_the_demo_prints_systems_placements_and_throughput(demo: Demo) -> None:
    titles = ["Systems, as probed", "Placements of the newspaper", "Throughput, measured here"]
    assert [title for title in titles if title not in demo.output] == []
    assert re.search(r"articles: hits +│ \w+ +│ \d\.\d+ │", demo.output), demo.output
    throughput = demo.output.partition(titles[-1])[2]  # sentences above hold figures, too
    # An operation with no response in time has no ratio.
    ratios = re.findall(r"(?:\d\.\d\d| 0 │[^│\n]+│ +-) │\n", throughput)
    assert len(ratios) == 3, "a ratio for each workload"
    assert demo.output.count("curl ") == 3


async def test_the_demo_serves_its_data(demo: Demo) -> None:
    async with httpx.AsyncClient(base_url=f"{demo.data}news/", timeout=60) as client:
        ranking = {"order": "-hits", "limit": "10", "fields": "hits,title"}
        top = (await client.get("articles", params=ranking)).json()["items"]
        assert len(top) == 10
        assert top == sorted(top, key=lambda article: -article["hits"])
        assert top[0]["hits"] > 0
        hit = await client.patch("articles/a7", json={"hits": {"inc": 1}}, headers=UPDATE)
        assert hit.json()["hits"] == 1 + next(
            (article["hits"] for article in top if article["id"] == "a7"), hit.json()["hits"] - 1
        )
        assert (await client.get("comments/c3")).json()["article"]


async def test_nothing_in_the_example_is_tied_to_a_system(demo: Demo) -> None:
    """Metrics stated by the operator change the advice, and the schemas set later."""
    async with httpx.AsyncClient(base_url=demo.admin, timeout=60) as client:
        explanation = (await client.get("placements/news/articles/hits")).json()
        winner, runner_up = explanation["system"], explanation["margin"]["runner_up"]
        metrics: dict[str, float | None] = {"write_throughput": 1e9}
        await _amend(client, runner_up, metrics)
        try:
            advice = (await client.post("advice", json={"schema": SCHEMA})).json()
            assert advice["placements"]["articles.hits"]["system"] == runner_up
            answer = await client.put("schemas/news_later", json=SCHEMA)
            assert answer.json()["placements"]["articles.hits"]["system"] == runner_up
            current = (await client.get("placements/news/articles/hits")).json()
            assert current["system"] == winner, "existing data moves only by migration"
        finally:
            await _amend(client, runner_up, {"write_throughput": None})
            await client.delete("schemas/news_later")


async def test_another_declaration_moves_the_people(demo: Demo) -> None:
    async with httpx.AsyncClient(base_url=demo.admin, timeout=60) as client:
        systems = {item["name"]: item for item in (await client.get("systems")).json()["items"]}
        declarations = {name: item["declared"] for name, item in systems.items()}
        join_system = next(name for name, declared in declarations.items() if "joins" in declared)
        plain_system = next(name for name, declared in declarations.items() if not declared)
        try:
            await client.patch(f"systems/{join_system}", json={"declared": []})
            await client.patch(
                f"systems/{plain_system}", json={"declared": declarations[join_system]}
            )
            advice = (await client.post("advice", json={"schema": SCHEMA})).json()
            assert advice["placements"]["people"]["system"] == plain_system
            assert advice["placements"]["articles"]["system"] == plain_system
        finally:
            for name in (join_system, plain_system):
                await client.patch(f"systems/{name}", json={"declared": declarations[name]})


async def test_the_demo_ends_on_ctrl_c_and_can_be_run_again(demo: Demo) -> None:
    children = psutil.Process(demo.process.pid).children(recursive=True)
    demo.process.send_signal(signal.SIGINT)
    remaining, _ = await demo.process.communicate()
    assert demo.process.returncode == 0, remaining.decode()
    assert "Traceback" not in remaining.decode()
    _, alive = await asyncio.to_thread(psutil.wait_procs, children, timeout=60)
    assert alive == []
    second = await start_demo(demo.directory, "--once")
    output, _ = await second.communicate()
    assert second.returncode == 0, output.decode()
    assert "Throughput, measured here" in output.decode()


async def _amend(client: httpx.AsyncClient, system: str, metrics: dict[str, Any]) -> None:
    answer = await client.patch(f"systems/{system}", json={"metrics": metrics})
    assert answer.is_success, answer.text
