"""Tutorials and recipes: every command is run, and answered as printed, on such a machine."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from app.admin.application import create_admin_app
from app.api.application import DataApp
from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from app.commands.demo.newspaper import DECLARED, SCHEMA
from mediator.stores.port import SystemConfig
from tests.process.service import Service, service

DOCS = Path(__file__).parents[3] / "docs"
DATA, ADMIN = "127.0.0.1:8080", "127.0.0.1:8081"
MEASURED = {
    "redis": {"write_throughput": 6271.7, "read_latency": 0.000072},
    "postgres": {"write_throughput": 4467.7},
    "mongo": {"write_throughput": 669.5},
}
"""The figures of the machine that the page was written on, so that its scores come out again."""


def steps(page: str) -> Iterator[tuple[str, Any]]:
    """Each command, and the answer that the page prints below it (None: none)."""
    found = re.findall(r"```sh\n(.*?)```\n(?:\n```json\n(.*?)```)?", page, re.DOTALL)
    return ((command, json.loads(answer) if answer else None) for command, answer in found)


def request_of(command: str) -> httpx.Request:
    """Translate a call of curl; whatever else the page uses has to be added here."""
    program, *words = shlex.split(command)
    assert program == "curl"
    method, headers, body, address = None, {}, None, ""
    while words:
        match words.pop(0):
            case "-X":
                method = words.pop(0)
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = words.pop(0)
            case "--json":
                method, body = method or "POST", words.pop(0)
                headers["Content-Type"] = "application/json"
            case word:
                address = word
    return httpx.Request(method or "GET", address, headers=headers, content=body)


def check(printed: Any, answered: Any, pointer: str = "") -> None:
    """Check that what is printed was answered; more may have been."""
    if isinstance(printed, dict):
        for name, member in printed.items():
            assert name in answered, f"{pointer}/{name}"
            check(member, answered[name], f"{pointer}/{name}")
    elif isinstance(printed, list):
        elided = "…" in printed
        kept = [member for member in printed if member != "…"]
        assert len(kept) == len(answered) or elided or pointer == "/thresholds", pointer
        for index, member in enumerate(kept):
            check(member, answered[index], f"{pointer}/{index}")
    elif printed == "…":
        assert answered, pointer
    elif isinstance(printed, float):
        assert answered == pytest.approx(printed, rel=1e-3), pointer
    else:
        assert answered == printed, pointer


@pytest.fixture(scope="module")
async def mediator(
    own_systems: Sequence[SystemConfig], own_catalogue: str
) -> AsyncIterator[Service]:
    """A service whose operator states the page's figures, with what `make run` has set up."""
    async with service(own_systems, own_catalogue) as started:
        control = started.mediator.control
        for name, metrics in MEASURED.items():
            await control.amend(name, metrics=metrics)
        for name, kind in (("postgres", "postgresql"), ("mongo", "mongodb")):
            # What the probe proves unless its time is over, on a machine that is busy.
            await control.amend(name, declared=[*DECLARED[kind], "sorting"])
        await control.set_schema("news", SCHEMA)
        yield started


@pytest.fixture(scope="module")
async def client(mediator: Service) -> AsyncIterator[httpx.AsyncClient]:
    """A client of both ports."""
    running = mediator.mediator
    options, transact = DataOptions(b"key"), running.transactions.run
    data = DataApp(
        DataApi(running.data, options, mediator.observed.append, DataServices(transact=transact))
    )
    admin = create_admin_app(running.control, CollectorRegistry())
    mounts = {
        f"http://{DATA}": httpx.ASGITransport(data),
        f"http://{ADMIN}": httpx.ASGITransport(admin),
    }
    async with httpx.AsyncClient(mounts=mounts) as both:
        yield both


@pytest.mark.parametrize("name", ["start.md", "tutorial.md", "how-do-i.md"])
async def test_every_command_is_answered_as_printed(client: httpx.AsyncClient, name: str) -> None:
    page = (DOCS / name).read_text()
    commands = list(steps(page))
    assert len(commands) == page.count("```sh\n") > 0
    for command, printed in commands:
        answer = await client.send(request_of(command))
        refused = isinstance(printed, dict) and printed.get("status") == answer.status_code
        assert answer.is_success or refused, (command, answer.text)
        if printed is not None:
            check(printed, answer.json())
