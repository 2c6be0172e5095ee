"""Tutorials and recipes: every command gets the printed answer, with the page's measurements."""

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
"""The figures of the machine that the page was written on, which reproduce its scores."""


def steps(page: str) -> Iterator[tuple[str, Any]]:
    """Return each command with the answer that the page prints below it (None: no answer)."""
    matches = re.findall(r"```sh\n(.*?)```\n(?:\n```json\n(.*?)```)?", page, re.DOTALL)
    return ((command, json.loads(answer) if answer else None) for command, answer in matches)


def request_of(command: str) -> httpx.Request:
    """Translate a call of curl; further options of a page have to be added here."""
    program, *arguments = shlex.split(command)
    assert program == "curl"
    method, headers, body, address = None, {}, None, ""
    while arguments:
        match arguments.pop(0):
            case "-X":
                method = arguments.pop(0)
            case "-H":
                name, _, value = arguments.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = arguments.pop(0)
            case "--json":
                method, body = method or "POST", arguments.pop(0)
                headers["Content-Type"] = "application/json"
            case word:
                address = word
    return httpx.Request(method or "GET", address, headers=headers, content=body)


def check(printed: Any, answer: Any, pointer: str = "") -> None:
    """Check that the answer has the printed members; it may have more."""
    if isinstance(printed, dict):
        for name, member in printed.items():
            assert name in answer, f"{pointer}/{name}"
            check(member, answer[name], f"{pointer}/{name}")
    elif isinstance(printed, list):
        elided = "…" in printed
        members = [member for member in printed if member != "…"]
        assert len(members) == len(answer) or elided or pointer == "/thresholds", pointer
        for index, member in enumerate(members):
            check(member, answer[index], f"{pointer}/{index}")
    elif printed == "…":
        assert answer, pointer
    elif isinstance(printed, float):
        assert answer == pytest.approx(printed, rel=1e-3), pointer
    else:
        assert answer == printed, pointer


@pytest.fixture(scope="module")
async def mediator(
    own_systems: Sequence[SystemConfig], own_catalogue: str
) -> AsyncIterator[Service]:
    """A service whose operator states the page's figures, with the setup of `make run`."""
    async with service(own_systems, own_catalogue) as started:
        control = started.mediator.control
        for name, metrics in MEASURED.items():
            await control.amend(name, metrics=metrics)
        for name, kind in (("postgres", "postgresql"), ("mongo", "mongodb")):
            # The probe proves these unless it times out, on a busy machine.
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
    async with httpx.AsyncClient(mounts=mounts) as http:
        yield http


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
