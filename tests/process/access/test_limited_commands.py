"""Commands of a tenant whose limits refuse some of their requests wait, and continue."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest

from tests.faults.conditions import WITHIN_S
from tests.faults.operation.forked import Forked, called
from tests.process.access.bounded import Bounded
from tests.process.caching.serving import Endpoint, served

JOB = {"kind": "example.count", "spec": {"records": {"class": "notes"}, "field": "title"}}


@pytest.fixture
async def environment(bounded: Bounded) -> AsyncIterator[dict[str, str]]:
    """Settings with which commands of the tenant find the service."""
    key = bounded.key["authorization"].removeprefix("Bearer ")
    endpoint = Endpoint()
    endpoint.app = bounded.running.container.data
    async with served(endpoint) as url:
        port = url.rpartition(":")[2]
        yield {**os.environ, "PORTOLAN_PORT": port, "PORTOLAN_KEY": key, "COLUMNS": "200"}


async def test_an_import_continues_when_its_time_is_over(
    bounded: Bounded, environment: dict[str, str]
) -> None:
    await bounded.limit(stream_seconds=1e-9)
    lines = b"".join(b'{"id":"%04d"}\n' % number for number in range(1_500))
    result = await called(["import", bounded.database, "notes"], environment, lines)
    assert result.exit_code == 0, result
    assert result.stdout == "Objects imported: 1,500; lines refused: 0.\n"
    assert result.stderr.count("Trying again, for 600 s at most.") == 1
    await bounded.limit()
    exported = await bounded.request("GET", "notes/export")
    assert len(exported.text.splitlines()) == 1_500


async def test_a_run_is_waited_for_though_the_rate_is_limited(
    bounded: Bounded, environment: dict[str, str], tmp_path: Path
) -> None:
    """Its submission is refused at first, and so is every second poll of its state."""
    job = tmp_path / "job.json"
    job.write_bytes(orjson.dumps(JOB))
    await bounded.limit(rate=1.0, burst=1)
    assert (await bounded.request("GET", "jobs")).status_code == 200
    arguments = ("job", "submit", str(job), "--database", bounded.database, "--wait")
    process = await Forked.start(arguments, environment)
    async with asyncio.timeout(WITHIN_S):
        output = ""
        while not ("Trying again, for 600 s" in output and "Run " in output):
            output += (line := (await process.output.readline()).decode())
            assert line, output
        run = output.partition("Run ")[2].split()[0]
        owner = await bounded.running.headers("operator", "admin")
        path = f"/v1/{bounded.database}/jobs/{run}"
        answer = await bounded.running.data.delete(path, headers=owner)
        assert answer.status_code == 200, answer.text
        status, remaining = await process.ended()
    assert status == 130, remaining
