"""`portolan` in a process that is forked from one which has imported all of it already.

To import the service takes several times as long as to start it, and tests start it often.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import TextIO, cast

__all__ = ["Forked"]

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["app.commands.serve", "app.service.serving"])


class Forked:
    """A running `portolan`; see `start`.

    Args:
        process: The process.
        output: What it prints.
    """

    def __init__(
        self, process: multiprocessing.process.BaseProcess, output: asyncio.StreamReader
    ) -> None:
        self._process = process
        self.output = output

    @classmethod
    async def start(cls, arguments: Sequence[str], environment: Mapping[str, str]) -> Forked:
        """Run `portolan` with arguments of its command line, in an environment."""
        ours, theirs = _FORKS.Pipe(duplex=False)
        start = (theirs, tuple(arguments), dict(environment))
        process = _FORKS.Process(target=_run, args=start, daemon=True)
        await asyncio.to_thread(process.start)
        theirs.close()
        output = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(os.dup(ours.fileno()), "rb")
        )
        ours.close()
        return cls(process, output)

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process.pid is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait until it has ended; return its exit status."""
        await asyncio.to_thread(self._process.join)
        assert self._process.exitcode is not None
        return self._process.exitcode


def _run(output: Connection, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output.fileno(), stream.fileno())
        cast(TextIO, stream).reconfigure(line_buffering=True)  # type: ignore[attr-defined]
    output.close()
    from app.cli import main

    sys.argv = ["portolan", *arguments]
    main()
