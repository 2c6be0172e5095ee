"""Processes that are forked from one which has imported all of `portolan` already.

To import the service takes several times as long as to start it, and tests start it often.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, TextIO, cast

import orjson

from app.cli import COMMANDS

__all__ = ["FORKS", "Forked", "Result", "called", "calling", "connected", "exit_code_of"]

FORKS = multiprocessing.get_context("forkserver")
"""Where all processes of tests are forked. A process has one server of them, so nothing else may
decide what that imports: it would be instead of what is here."""

_LATE = (
    "anyio._backends._asyncio",
    "app.commands.line_ids",
    "app.commands.yaml_text",
    "app.settings.known",
    "httpcore",
    "mediator.stores.mongo.store",
    "rich._emoji_codes",
    "typer._adapters",
    "typer._click._textwrap",
    "typer._click.decorators",
    "typer.rich_utils",
    "uvicorn.lifespan.off",
)
"""What commands import when they are called."""

_LAST = "tests.faults.operation.frozen"

FORKS.set_forkserver_preload(
    [
        "app.service.serving",
        *sorted({where.partition(":")[0] for where in COMMANDS.values()}),
        *_LATE,
        "mediator.relocation.participant",
        _LAST,
    ]
)


class Result(NamedTuple):
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        return self.stdout.splitlines()

    @property
    def objects(self) -> list[Any]:
        return [orjson.loads(line) for line in self.lines]


@asynccontextmanager
async def calling(function: Callable[..., None], *arguments: Any) -> AsyncIterator[BaseProcess]:
    """Call a function of a module in a process of its own, which is killed at the end."""
    process = FORKS.Process(target=function, args=arguments, daemon=True)
    await asyncio.to_thread(process.start)
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.join)


async def exit_code_of(function: Callable[..., None], *arguments: Any) -> int:
    """Call a function of a module in a process of its own; return how that ended."""
    async with calling(function, *arguments) as process:
        await asyncio.to_thread(process.join)
        assert process.exitcode is not None
        return process.exitcode


def connected() -> tuple[socket.socket, Connection]:
    """Return the two ends of a connection: ours, and the one to call a function with."""
    ours, theirs = socket.socketpair()
    return ours, Connection(theirs.detach())


async def called(
    arguments: Sequence[str], environment: Mapping[str, str], text: bytes = b""
) -> Result:
    """Run `portolan` to its end, with a text as its standard input."""
    with ExitStack() as stack:
        given, *printed = [stack.enter_context(TemporaryFile()) for _ in range(3)]
        given.write(text)
        given.seek(0)
        streams = [
            stack.enter_context(Connection(os.dup(file.fileno()))) for file in (given, *printed)
        ]
        process = _process(streams, arguments, environment)
        try:
            await asyncio.to_thread(process.start)
            await asyncio.to_thread(process.join)
        finally:
            process.kill()
        assert process.exitcode is not None
        return Result(process.exitcode, *map(_content, printed))


def _content(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class Forked:
    """A running `portolan`; see `start`.

    Args:
        process: The process.
        output: What it prints, on both streams unless the first one goes elsewhere.
    """

    def __init__(self, process: BaseProcess, output: asyncio.StreamReader) -> None:
        self._process = process
        self.output = output

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdin: int | None = None,
        stdout: int | None = None,
        prepare: Callable[[], None] | None = None,
    ) -> Forked:
        """Run `portolan` with arguments of its command line, in an environment.

        Args:
            stdin: What it reads, nothing if not given.
            stdout: Where it prints results.
            prepare: A function of a module, called in the process before.
        """
        ours, theirs = FORKS.Pipe(duplex=False)
        given, printed = (None if fd is None else Connection(os.dup(fd)) for fd in (stdin, stdout))
        process = _process([given, printed or theirs, theirs], arguments, environment, prepare)
        await asyncio.to_thread(process.start)
        for end in filter(None, (given, printed, theirs)):
            end.close()
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

    async def ended(self) -> tuple[int, str]:
        """Wait until it has ended; return its exit status and the rest of its output."""
        said = await self.output.read()
        return await self.wait(), said.decode()


def _process(
    streams: Sequence[Connection | None],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    prepare: Callable[[], None] | None = None,
) -> BaseProcess:
    """Return a process that is not started yet; without a standard input it reads nothing."""
    run = (streams, tuple(arguments), dict(environment), prepare)
    return FORKS.Process(target=_run, args=run, daemon=True)


def _run(
    streams: Sequence[Connection | None],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    prepare: Callable[[], None] | None,
) -> None:
    if _LAST not in sys.modules:
        raise RuntimeError("something else decides what is imported before processes are forked")
    os.environ.clear()
    # Half of what a command takes would be to read all authorities that the Internet trusts.
    os.environ.update({"SSL_CERT_DIR": os.devnull, **environment})
    for stream, own in zip(streams, (sys.stdin, sys.stdout, sys.stderr), strict=True):
        if stream is not None:
            os.dup2(stream.fileno(), own.fileno())
    for stream in filter(None, streams):
        stream.close()
    for own in (sys.stdout, sys.stderr):
        cast(TextIO, own).reconfigure(line_buffering=True)  # type: ignore[attr-defined]
    from app.cli import main

    if prepare is not None:
        prepare()
    sys.argv = ["portolan", *arguments]
    main()
