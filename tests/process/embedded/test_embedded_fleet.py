"""A fleet of embedded servers, and the service that runs it."""

from __future__ import annotations

import fcntl
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from mediator.embedded.directories import DataDirectoryBusy, DataDirectoryLock
from mediator.embedded.fleet import EmbeddedFleet
from mediator.embedded.port import EmbeddedStartError
from mediator.embedded.postgresql import EmbeddedPostgres
from tests.process.embedded.altered_servers import recover_by
from tests.process.embedded.servers import (
    KINDS,
    WITHIN_S,
    fleet_in,
    get,
    processes_in,
    put,
    server_pids,
    start_service,
)


def test_a_fleet_runs_every_kind_and_leaves_no_process(used_dir: Path) -> None:
    with fleet_in(used_dir) as fleet:
        assert set(fleet.endpoints) == set(KINDS)
        assert fleet.unavailable == ()
        for endpoint in fleet.endpoints.values():
            put(endpoint, endpoint.kind)
            assert get(endpoint) == endpoint.kind
            assert endpoint.version
            assert endpoint.durability_s <= 1
    assert fleet.endpoints == {}
    assert not processes_in(used_dir)


def test_restarting_a_fleet_restarts_killed_servers(used_dir: Path) -> None:
    with fleet_in(used_dir) as fleet:
        before = server_pids(used_dir)
        os.kill(before["redis"], signal.SIGKILL)
        endpoints = fleet.start().endpoints
        after = server_pids(used_dir)
        assert {kind for kind in before if before[kind] != after[kind]} == {"redis"}
        put(endpoints["redis"], "back")


def test_a_fleet_that_was_stopped_does_not_start(used_dir: Path) -> None:
    """As when a signal arrives before the thread of the start runs."""
    fleet = fleet_in(used_dir)
    fleet.stop()
    try:
        with pytest.raises(RuntimeError, match="was stopped"):
            fleet.start()
        assert not processes_in(used_dir)
    finally:
        fleet.stop()


def test_a_start_that_is_stopped_as_it_takes_its_directory_is_abandoned(
    used_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet, flock = fleet_in(used_dir), fcntl.flock

    def stop_and_lock(descriptor: int, operation: int) -> None:
        fleet.stop()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", stop_and_lock)
    try:
        with pytest.raises(EmbeddedStartError, match="its start was abandoned"):
            fleet.start()
        assert not processes_in(used_dir)
    finally:
        fleet.stop()
    lock = DataDirectoryLock(used_dir)
    lock.acquire()
    lock.release()


def test_a_server_that_fails_ends_the_start_of_one_that_loads(data_dir: Path) -> None:
    """PostgreSQL would be recovering for ten minutes."""
    with EmbeddedPostgres(data_dir / "postgresql") as server:
        server.start()
    recover_by(server, "sleep 600; false")
    (data_dir / "redis").mkdir(mode=0o700)
    (data_dir / "redis" / "appendonlydir").touch()
    fleet = fleet_in(data_dir)
    with ThreadPoolExecutor() as threads:
        try:
            start = threads.submit(fleet.start)
            with pytest.raises(EmbeddedStartError, match="redis: the server ended"):
                start.result(WITHIN_S)
        finally:
            fleet.stop()
    assert not processes_in(data_dir)


def test_a_second_service_on_the_directory_is_refused(used_dir: Path) -> None:
    with fleet_in(used_dir):
        with pytest.raises(DataDirectoryBusy, match=str(os.getpid())):
            fleet_in(used_dir).start()
        assert len(server_pids(used_dir)) == len(KINDS)


def test_servers_of_a_killed_service_are_adopted(used_dir: Path) -> None:
    service = start_service(used_dir)
    before = server_pids(used_dir)
    service.kill()
    service.wait()
    with fleet_in(used_dir) as fleet:
        assert server_pids(used_dir) == before
        for endpoint in fleet.endpoints.values():
            put(endpoint, "adopted")
    assert not processes_in(used_dir)


def test_a_server_has_the_options_of_java_that_its_owner_chose(used_dir: Path) -> None:
    option = "-Dportolan.chosen=1"
    with EmbeddedFleet(used_dir, java_options=[option]):
        commands = {
            kind: psutil.Process(pid).cmdline() for kind, pid in server_pids(used_dir).items()
        }
    assert [kind for kind, command in commands.items() if option in command] == ["mongodb/h2"]


def test_killed_servers_of_a_killed_service_are_restarted(used_dir: Path) -> None:
    service = start_service(used_dir)
    before = server_pids(used_dir)
    service.kill()
    service.wait()
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    with fleet_in(used_dir) as fleet:
        assert not set(server_pids(used_dir).values()) & set(before.values())
        for endpoint in fleet.endpoints.values():
            put(endpoint, "revived")


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_ends_leaves_no_process(
    signal_number: signal.Signals, used_dir: Path
) -> None:
    service = start_service(used_dir)
    service.send_signal(signal_number)
    service.wait(WITHIN_S)
    assert not processes_in(used_dir)


def test_without_java_the_fleet_runs_without_mongodb(
    used_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(used_dir))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with fleet_in(used_dir) as fleet:
        assert set(fleet.endpoints) == {"redis", "postgresql"}
        (missing,) = fleet.unavailable
    assert missing.kind == "mongodb"
    assert "java" in missing.reason
    assert "JDK" in missing.remedy
