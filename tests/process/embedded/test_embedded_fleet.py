"""A fleet of embedded servers, and the service that runs it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest

from mediator.embedded.directories import DataDirectoryBusy
from mediator.embedded.fleet import EmbeddedFleet
from tests.process.embedded.servers import (
    KINDS,
    WITHIN_S,
    fleet_in,
    get,
    processes_in,
    put,
    running_service,
    server_pids,
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


def test_a_second_service_on_the_directory_is_refused(used_dir: Path) -> None:
    with fleet_in(used_dir):
        with pytest.raises(DataDirectoryBusy, match=str(os.getpid())):
            fleet_in(used_dir).start()
        assert len(server_pids(used_dir)) == len(KINDS)


def test_servers_of_a_killed_service_are_adopted(used_dir: Path) -> None:
    service = running_service(used_dir)
    before = server_pids(used_dir)
    service.kill()
    service.wait()
    with fleet_in(used_dir) as fleet:
        assert server_pids(used_dir) == before
        for endpoint in fleet.endpoints.values():
            put(endpoint, "adopted")
    assert not processes_in(used_dir)


def test_a_server_has_the_options_of_java_that_its_owner_chose(used_dir: Path) -> None:
    chosen = "-Dportolan.chosen=1"
    with EmbeddedFleet(used_dir, java_options=[chosen]):
        running = {
            kind: psutil.Process(pid).cmdline() for kind, pid in server_pids(used_dir).items()
        }
    assert [kind for kind, command in running.items() if chosen in command] == ["mongodb/h2"]


def test_killed_servers_of_a_killed_service_are_restarted(used_dir: Path) -> None:
    service = running_service(used_dir)
    before = server_pids(used_dir)
    service.kill()
    service.wait()
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    with fleet_in(used_dir) as fleet:
        assert not set(server_pids(used_dir).values()) & set(before.values())
        for endpoint in fleet.endpoints.values():
            put(endpoint, "revived")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_service_that_ends_leaves_no_process(sent: signal.Signals, used_dir: Path) -> None:
    service = running_service(used_dir)
    service.send_signal(sent)
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
