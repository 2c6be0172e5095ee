"""Access to embedded servers, and where their files and sockets are."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import tempfile
from pathlib import Path

import pytest

from mediator.embedded.account import accessible_directory, unprivileged_account
from mediator.embedded.directories import socket_path
from mediator.embedded.port import (
    EmbeddedStartError,
    Kind,
)
from mediator.embedded.postgresql import EmbeddedPostgres
from mediator.embedded.redis import EmbeddedRedis
from tests.process.embedded.servers import (
    KINDS,
    OTHER_USER,
    SERVERS,
    another_user,
    can_connect,
    can_open,
    fleet_in,
    get,
    listening_at,
    living_pid,
    put,
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_path_moves_the_socket_to_a_temporary_directory(
    kind: Kind, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_dir / "tmp").mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(data_dir / "tmp"))
    with SERVERS[kind](data_dir / ("long" * 30) / kind, "full") as server:
        endpoint = server.start()
        put(endpoint, "kept")
        os.kill(living_pid(server), signal.SIGKILL)
        restarted = server.start()
        assert (restarted.url, get(restarted)) == (endpoint.url, "kept")
        (sockets,) = (data_dir / "tmp").iterdir()
        assert sockets.name in restarted.url
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700


def test_a_socket_directory_that_another_user_made_is_not_used(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a directory of another user")
    (data_dir / "tmp").mkdir(mode=0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(data_dir / "tmp"))
    server = EmbeddedRedis(data_dir / ("long" * 30) / "redis")
    directory = socket_path(server.directory, server.socket_name).parent
    directory.mkdir()
    os.chown(directory, OTHER_USER, OTHER_USER)
    with pytest.raises(EmbeddedStartError, match="not a directory of this user"):
        server.start()


def test_another_user_of_the_machine_reaches_and_reads_nothing(data_dir: Path) -> None:
    data_dir.chmod(0o755)
    with fleet_in(data_dir) as fleet:
        for endpoint in fleet.endpoints.values():
            put(endpoint, "secret")
        addresses, files = listening_at(data_dir), [*data_dir.rglob("*")]
        assert len(addresses) >= len(KINDS)
        assert all(can_connect(address) for address in addresses)
        with another_user():
            assert [address for address in addresses if can_connect(address)] == []
            assert [path for path in files if can_open(path)] == []


@pytest.mark.parametrize("umask", [0o022, 0o000])
def test_files_are_for_their_owner_alone(umask: int, data_dir: Path) -> None:
    before = os.umask(umask)
    try:
        with fleet_in(data_dir / "data") as fleet:
            for endpoint in fleet.endpoints.values():
                put(endpoint, "secret")
            for kind in KINDS:
                assert stat.S_IMODE((data_dir / "data" / kind).stat().st_mode) == 0o700
            assert stat.S_IMODE((data_dir / "data").stat().st_mode) in {0o700, 0o701}
            assert stat.S_IMODE((data_dir / "data" / "service.lock").stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_postmaster_pid_of_an_unrelated_process_is_ignored(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir / "postgresql", "full") as server:
        put(server.start(), "kept")
        os.kill(living_pid(server), signal.SIGKILL)
        stale = server.directory / "cluster" / "postmaster.pid"
        _, content = stale.read_text().split("\n", 1)
        stale.write_text(f"{os.getpid()}\n{content}")
        assert get(server.start()) == "kept"


def test_an_unrelated_process_with_a_stale_pid_is_not_killed(data_dir: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as other_process:
        with EmbeddedRedis(data_dir / "redis") as server:
            server.stop()
            (server.directory / "server.pid").write_text(str(other_process.pid))
            server.start()
        assert other_process.poll() is None
        other_process.kill()


def test_root_gets_a_directory_that_the_account_can_reach(data_dir: Path) -> None:
    closed = data_dir / "closed"
    requested = closed / "data" / "postgresql"
    closed.mkdir(mode=0o700)
    account = unprivileged_account(requested)
    directory = accessible_directory(requested, account, "postgresql")
    try:
        assert (directory == requested) is (account is None)
        assert directory.owner() == (account.name if account else requested.parent.owner())
        assert stat.S_IMODE(closed.stat().st_mode) == 0o700
        assert accessible_directory(requested, account, "postgresql") == directory
    finally:
        directory.rmdir()


def test_a_private_data_directory_gets_only_search_permission(data_dir: Path) -> None:
    private = data_dir / "private"
    private.mkdir(mode=0o700)
    account = unprivileged_account(private / "postgresql")
    assert (
        accessible_directory(private / "postgresql", account, "postgresql")
        == private / "postgresql"
    )
    assert stat.S_IMODE(private.stat().st_mode) == (0o701 if account else 0o700)


@pytest.mark.parametrize("name", ["dätä ☃", "a,b"])
def test_servers_run_in_a_directory_of_any_name(name: str, data_dir: Path) -> None:
    with fleet_in(data_dir / name) as fleet:
        assert set(fleet.endpoints) == set(KINDS)
        for endpoint in fleet.endpoints.values():
            put(endpoint, "kept")
            assert get(endpoint) == "kept"


def test_a_temporary_directory_with_a_comma_is_refused(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(data_dir / "t,mp"))
    with pytest.raises(EmbeddedStartError, match="TMPDIR"):
        EmbeddedRedis(data_dir / "a,b" / "redis").start()
