"""PostgreSQL of a service that root runs: its account can have root do nothing for it."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path

import pytest

from mediator.embedded.account import (
    Account,
    accessible_directory,
    chown_tree,
    unprivileged_account,
)
from mediator.embedded.port import EmbeddedStartError
from mediator.embedded.postgresql import EmbeddedPostgres
from tests.process.embedded.servers import get, put


@pytest.fixture
def account(data_dir: Path) -> Account:
    found = unprivileged_account(data_dir / "postgresql")
    if found is None:
        pytest.skip("the servers run as the user who runs the service, unless that is root")
    return found


@pytest.fixture
def victim(data_dir: Path) -> Path:
    """A directory of root's with a file in it, whose name alone is like those of the service."""
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
    named = Path("/var/lib/portolan", f"not-{_name()}" if forged == "name" else _name())
    directory = data_dir / "postgresql"
    directory.mkdir()
    os.chown(directory, account.uid, account.gid)
    pointer = directory / "elsewhere"
    if forged == "link":
        (data_dir / "text").write_text(str(named))
        pointer.symlink_to(data_dir / "text")
    else:
        # Of directories of the test alone: what is named is given away if this is not refused.
        pointer.write_text(str(victim if forged == "directory" else named))
    if forged == "owner":
        os.chown(pointer, account.uid, account.gid)
    try:
        with pytest.raises(EmbeddedStartError, match="was not written by this service"):
            accessible_directory(directory, account, "postgresql")
        assert owners(victim) == {0}
        assert not named.exists()
    finally:
        if named.exists():
            named.rmdir()


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


def test_a_pipe_in_place_of_our_file_keeps_nobody_waiting(data_dir: Path, account: Account) -> None:
    directory = data_dir / "postgresql"
    directory.mkdir()
    os.chown(directory, account.uid, account.gid)
    for name in ("server.pid", "server.command"):
        os.mkfifo(directory / name)
    server = EmbeddedPostgres(directory)
    assert not server.is_running


def test_a_program_that_the_account_names_is_not_run(
    data_dir: Path, victim: Path, account: Account
) -> None:
    psql = data_dir / "psql"
    psql.write_text(f"#!/bin/sh\ntouch {victim}/run\n")
    psql.chmod(0o755)
    with EmbeddedPostgres(data_dir / "postgresql") as server:
        endpoint = server.start()
        named = json.dumps([str(psql.with_name("postgres"))])
        (server.directory / "server.command").write_text(named)
        assert EmbeddedPostgres(data_dir / "postgresql").running() == endpoint
    assert not (victim / "run").exists()
