"""`portolan demo` as a newcomer runs it, and what its addresses answer while it is up."""

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

    def _address(self, of: str) -> str:
        found = re.search(rf"{of} +(http://\S+/v1/)", self.output)
        assert found, self.output
        return found[1]


async def started(directory: Path, *options: str) -> Process:
    free = ("--port", "0", "--admin-port", "0", "--seconds", "1")
    where = ("--data-dir", str(directory))
    return await asyncio.create_subprocess_exec(
        *COMMAND, *where, *free, *options, stdout=PIPE, stderr=STDOUT
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
    process = await started(directory)
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
    # None to what was answered so slowly that nothing was in time.
    ratios = re.findall(r"(?:\d\.\d\d| 0 │[^│\n]+│ +-) │\n", throughput)
    assert len(ratios) == 3, "a ratio for each work"
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
    """Metrics that the operator states change the advice, and a schema set afterwards."""
    async with httpx.AsyncClient(base_url=demo.admin, timeout=60) as client:
        explained = (await client.get("placements/news/articles/hits")).json()
        winner, other = explained["system"], explained["margin"]["runner_up"]
        stated: dict[str, float | None] = {"write_throughput": 1e9}
        await _amend(client, other, stated)
        try:
            advice = (await client.post("advice", json={"schema": SCHEMA})).json()
            assert advice["placements"]["articles.hits"]["system"] == other
            answer = await client.put("schemas/news_later", json=SCHEMA)
            assert answer.json()["placements"]["articles.hits"]["system"] == other
            kept = (await client.get("placements/news/articles/hits")).json()
            assert kept["system"] == winner, "data that is there moves by migration only"
        finally:
            await _amend(client, other, {"write_throughput": None})
            await client.delete("schemas/news_later")


async def test_another_declaration_moves_the_people(demo: Demo) -> None:
    async with httpx.AsyncClient(base_url=demo.admin, timeout=60) as client:
        systems = {item["name"]: item for item in (await client.get("systems")).json()["items"]}
        words = {name: item["declared"] for name, item in systems.items()}
        joining = next(name for name, declared in words.items() if "joins" in declared)
        swapped = next(name for name, declared in words.items() if not declared)
        try:
            await client.patch(f"systems/{joining}", json={"declared": []})
            await client.patch(f"systems/{swapped}", json={"declared": words[joining]})
            advice = (await client.post("advice", json={"schema": SCHEMA})).json()
            assert advice["placements"]["people"]["system"] == swapped
            assert advice["placements"]["articles"]["system"] == swapped
        finally:
            for name in (joining, swapped):
                await client.patch(f"systems/{name}", json={"declared": words[name]})


async def test_the_demo_ends_on_ctrl_c_and_can_be_run_again(demo: Demo) -> None:
    children = psutil.Process(demo.process.pid).children(recursive=True)
    demo.process.send_signal(signal.SIGINT)
    rest, _ = await demo.process.communicate()
    assert demo.process.returncode == 0, rest.decode()
    assert "Traceback" not in rest.decode()
    _, left = await asyncio.to_thread(psutil.wait_procs, children, timeout=60)
    assert left == []
    again = await started(demo.directory, "--once")
    output, _ = await again.communicate()
    assert again.returncode == 0, output.decode()
    assert "Throughput, measured here" in output.decode()


async def _amend(client: httpx.AsyncClient, system: str, metrics: dict[str, Any]) -> None:
    answer = await client.patch(f"systems/{system}", json={"metrics": metrics})
    assert answer.is_success, answer.text
