"""A service in a process of its own, to be killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import httpx

__all__ = ["Service"]

READY_WITHIN_S = 90.0
_DATA = re.compile(r"Data API\s+(http://\S+?)/v1/")
_ADMIN = re.compile(r"Admin API\s+(http://\S+?)/admin/v1/")


class Service:
    """`portolan serve --embedded` on a data directory; started, killed and started again.

    The ports of the first start are kept, so that clients go on where they were.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._ports = ("0", "0")
        self._process: asyncio.subprocess.Process | None = None
        self._drain: asyncio.Task[None] | None = None
        self.data = ""
        self.admin = ""
        self.output: list[str] = []

    async def start(self) -> None:
        """Start, and return once it says where it listens."""
        port, admin_port = self._ports
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            "from app.cli import main; main()",
            "serve",
            "--embedded",
            "--data-dir",
            str(self._data_dir),
            "--port",
            port,
            "--admin-port",
            admin_port,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
        )
        async with asyncio.timeout(READY_WITHIN_S):
            await self._announced()
        self._drain = asyncio.create_task(self._read_rest())

    def kill(self) -> None:
        """Kill it as a crash would."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until the process is gone."""
        assert self._process is not None
        await self._process.wait()
        if self._drain is not None:
            await self._drain

    async def stop(self) -> None:
        """End it as an operator would, stores included."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self.gone()

    async def _announced(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            text = line.decode(errors="replace")
            self.output.append(text)
            if found := _DATA.search(text):
                self.data = found[1]
            if found := _ADMIN.search(text):
                self.admin = found[1]
                self._ports = (str(httpx.URL(self.data).port), str(httpx.URL(self.admin).port))
                return
        raise AssertionError("the service ended at its start:\n" + "".join(self.output[-50:]))

    async def _read_rest(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            self.output.append(line.decode(errors="replace"))
