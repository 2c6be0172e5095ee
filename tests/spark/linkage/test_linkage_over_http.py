"""The commands of docs/linkage.md, "Over HTTP", link two classes in different stores."""

from __future__ import annotations

import asyncio
import csv
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from spark_jobs.linkage.private.key_file import make_keys
from tests.faults.caching.http_client import Connection
from tests.faults.service import Service
from tests.faults.writes.worker import WorkerProcess

PAGE = (Path(__file__).parents[3] / "docs" / "linkage.md").read_text()
FIELDS = ("id", "given_name", "surname", "date_of_birth")
OURS = [("o1", "Ada", "Lovelace", "1815-12-10"), ("o2", "Alan", "Turing", "1912-06-23")]
THEIRS = [("t1", "Grace", "Hopper", "1906-12-09"), ("t2", "Alan", "Turing", "1912-06-23")]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A working directory with two tables and keys, and a short path."""
    with tempfile.TemporaryDirectory(prefix="portolan-") as name:
        path = Path(name).resolve()
        for table, rows in (("ours.csv", OURS), ("theirs.csv", THEIRS)):
            with (path / table).open("w", newline="") as file:
                csv.writer(file).writerows([FIELDS, *rows])
        make_keys(path / "keys.json")
        yield path


@pytest.fixture
async def service(folder: Path) -> AsyncIterator[Service]:
    """`portolan serve --embedded`, and a worker."""
    directory = folder / "study"
    arguments = ("--embedded", "--data-dir", str(directory))
    async with Service.embedded(directory).running() as running:
        worker = WorkerProcess({"PORTOLAN_SPARK": "local[2,4]"}, arguments)
        await worker.start()
        try:
            yield running
        finally:
            await worker.kill()


@pytest.mark.large  # minutes: a service, a worker and their stores
@pytest.mark.timeout(900)  # a service and Spark start, perhaps on a busy machine
async def test_the_commands_of_the_page_link_two_classes(service: Service, folder: Path) -> None:
    (commands,) = re.findall(r"## Over HTTP.*?```sh\n(.*?)```", PAGE, re.DOTALL)
    for printed, actual in (("8080", service.data), ("8081", service.admin)):
        commands = commands.replace(f"http://127.0.0.1:{printed}", actual)
    port = str(urlsplit(service.data).port)
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    shell = await asyncio.create_subprocess_exec(
        *("bash", "-euc", commands),
        cwd=folder,
        env={**os.environ, "PORTOLAN_PORT": port, "PATH": os.pathsep.join(folders)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await shell.communicate()
    assert shell.returncode == 0, output.decode()
    assert (folder / "links.csv").read_text().splitlines() == [
        '"left_party","left","right_party","right","similarity"',
        '"left","o2","right","t2",1',
    ]
    async with Connection(service.admin) as admin:
        reply = await admin.request("GET", "/admin/v1/schemas/study")
        placements = reply.json()["placements"]
    assert placements["ours.clk"]["system"] == "redis"
    assert placements["theirs.clk"]["system"] == "postgres"
