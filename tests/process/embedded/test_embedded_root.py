"""PostgreSQL of a service that root runs: its account cannot make root act for it."""

from __future__ import annotations

import json
import os
import resource
import secrets
import traceback
from pathlib import Path

import pytest

from mediator.embedded.account import (
    Account,
    accessible_directory,
    chown_tree,
    unprivileged_account,
)
from mediator.embedded.files import remove_file
from mediator.embedded.port import EmbeddedStartError
from mediator.embedded.postgresql import EmbeddedPostgres
from tests.process.embedded.servers import get, put


@pytest.fixture
def account(data_dir: Path) -> Account:
    unprivileged = unprivileged_account(data_dir / "postgresql")
    if unprivileged is None:
        pytest.skip("the servers run as the user who runs the service, unless that is root")
    return unprivileged


@pytest.fixture
def victim(data_dir: Path) -> Path:
    """A directory of root's with a file; only its name is like those of the service."""
    directory = data_dir / _name()
    directory.mkdir(mode=0o700)
    (directory / "file").write_text("root's")
    return directory


def _name() -> str:
    return f"postgresql-{secrets.token_hex(8)}"


def owners(victim: Path) -> set[int]:
    return {path.lstat().st_uid for path in (victim, victim / "file")}


@pytest.mark.parametrize("forged", ["directory", "name", "owner", "link"])
def test_a_forged_name_of_the_directory_is_refused(
    forged: str, data_dir: Path, victim: Path, account: Account
) -> None:
    target = Path("/var/lib/portolan", f"not-{_name()}" if forged == "name" else _name())
    directory = data_dir / "postgresql"
    directory.mkdir()
    os.chown(directory, account.uid, account.gid)
    pointer = directory / "elsewhere"
    if forged == "link":
        (data_dir / "text").write_text(str(target))
        pointer.symlink_to(data_dir / "text")
    else:
        # Only directories of the test: the named one is given away if this is not refused.
        pointer.write_text(str(victim if forged == "directory" else target))
    if forged == "owner":
        os.chown(pointer, account.uid, account.gid)
    try:
        with pytest.raises(EmbeddedStartError, match="was not written by this service"):
            accessible_directory(directory, account, "postgresql")
        assert owners(victim) == {0}
        assert not target.exists()
    finally:
        if target.exists():
            target.rmdir()


def test_a_full_disk_does_not_prevent_a_directory_at_later_starts(
    data_dir: Path, account: Account
) -> None:
    closed = data_dir / "closed"
    closed.mkdir(mode=0o700)
    requested = closed / "data" / "postgresql"
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        with pytest.raises(EmbeddedStartError, match="elsewhere cannot be written"):
            accessible_directory(requested, account, "postgresql")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    directory = accessible_directory(requested, account, "postgresql")
    try:
        assert directory.owner() == account.name
        assert accessible_directory(requested, account, "postgresql") == directory
    finally:
        directory.rmdir()


def test_a_link_is_not_given_to_the_account(data_dir: Path, victim: Path, account: Account) -> None:
    (data_dir / "link").symlink_to(victim)
    chown_tree(data_dir / "link", account)
    (data_dir / "tree").mkdir()
    (data_dir / "tree" / "link").symlink_to(victim)
    chown_tree(data_dir / "tree", account)
    assert owners(victim) == {0}
    assert (data_dir / "tree" / "link").lstat().st_uid == account.uid


def test_links_in_place_of_our_files_are_replaced(
    data_dir: Path, victim: Path, account: Account
) -> None:
    with EmbeddedPostgres(data_dir / "postgresql") as server:
        put(server.start(), "kept")
    for name, target in {"server.log": "new", "server.command": "file"}.items():
        (server.directory / name).unlink()
        (server.directory / name).symlink_to(victim / target)
    with EmbeddedPostgres(data_dir / "postgresql") as server:
        assert get(server.start()) == "kept"
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "root's"


def test_a_pipe_in_place_of_our_file_does_not_block(data_dir: Path, account: Account) -> None:
    directory = data_dir / "postgresql"
    directory.mkdir()
    os.chown(directory, account.uid, account.gid)
    for name in ("server.pid", "server.command"):
        os.mkfifo(directory / name)
    server = EmbeddedPostgres(directory)
    assert not server.is_running


@pytest.mark.parametrize("kind", ["pipe", "link", "text", "nothing"])
def test_an_invalid_version_file_is_refused_and_not_quoted(
    kind: str, data_dir: Path, victim: Path
) -> None:
    version = data_dir / "postgresql" / "cluster" / "PG_VERSION"
    version.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(version)
    elif kind == "link":
        version.symlink_to(victim / "file")
    elif kind == "text":
        version.write_text("root's")
    with pytest.raises(EmbeddedStartError, match="is not a PostgreSQL cluster") as refused:
        EmbeddedPostgres(data_dir / "postgresql").start()
    traceback_text = "".join(traceback.format_exception(refused.value))
    assert (victim / "file").read_text() not in traceback_text


def test_a_cluster_that_is_a_link_is_refused_and_not_touched(data_dir: Path) -> None:
    with EmbeddedPostgres(data_dir / "other") as other:
        endpoint = other.start()
        put(endpoint, "kept")
        lock = other.directory / "cluster" / "postmaster.pid"
        before = lock.read_text()
        (data_dir / "postgresql").mkdir()
        (data_dir / "postgresql" / "cluster").symlink_to(other.directory / "cluster")
        with pytest.raises(EmbeddedStartError, match="is not a PostgreSQL cluster"):
            EmbeddedPostgres(data_dir / "postgresql").start()
        assert lock.read_text() == before
        assert get(endpoint) == "kept"


def test_a_file_is_not_removed_from_a_directory_that_is_a_link(
    data_dir: Path, victim: Path
) -> None:
    (data_dir / "link").symlink_to(victim)
    with pytest.raises(OSError, match="link"):
        remove_file(data_dir / "link" / "file")
    assert (victim / "file").exists()


def test_a_program_that_the_account_names_is_not_run(
    data_dir: Path, victim: Path, account: Account
) -> None:
    psql = data_dir / "psql"
    psql.write_text(f"#!/bin/sh\ntouch {victim}/run\n")
    psql.chmod(0o755)
    with EmbeddedPostgres(data_dir / "postgresql") as server:
        endpoint = server.start()
        command = json.dumps([str(psql.with_name("postgres"))])
        (server.directory / "server.command").write_text(command)
        assert EmbeddedPostgres(data_dir / "postgresql").running() == endpoint
    assert not (victim / "run").exists()
