"""Processes forked from a server that has already imported all of `portolan`.

Importing the service takes several times as long as starting it, and tests start it often.
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
"""The fork server of all test processes. There is one per process, so only this module may set its
preloaded modules."""

_LAZY_IMPORTS = (
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
"""Modules that commands import when they are called."""

_LAST_IMPORT = "tests.faults.operation.frozen"

FORKS.set_forkserver_preload(
    [
        "app.service.serving",
        *sorted({target.partition(":")[0] for target in COMMANDS.values()}),
        *_LAZY_IMPORTS,
        "mediator.relocation.participant",
        _LAST_IMPORT,
    ]
)


class Result(NamedTuple):
    """The exit code and output of a command."""

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
    """Call a module-level function in a new process, which is killed at the end."""
    process = FORKS.Process(target=function, args=arguments, daemon=True)
    await asyncio.to_thread(process.start)
    try:
        yield process
    finally:
        process.kill()
        await asyncio.to_thread(process.join)


async def exit_code_of(function: Callable[..., None], *arguments: Any) -> int:
    """Call a module-level function in a new process; return its exit code."""
    async with calling(function, *arguments) as process:
        await asyncio.to_thread(process.join)
        assert process.exitcode is not None
        return process.exitcode


def connected() -> tuple[socket.socket, Connection]:
    """Return both ends of a connection: ours, and one to pass to a function in a new process."""
    ours, theirs = socket.socketpair()
    return ours, Connection(theirs.detach())


async def called(
    arguments: Sequence[str], environment: Mapping[str, str], text: bytes = b""
) -> Result:
    """Run `portolan` until it exits, with `text` as its standard input."""
    with ExitStack() as stack:
        stdin_file, *output_files = [stack.enter_context(TemporaryFile()) for _ in range(3)]
        stdin_file.write(text)
        stdin_file.seek(0)
        streams = [
            stack.enter_context(Connection(os.dup(file.fileno())))
            for file in (stdin_file, *output_files)
        ]
        process = _new_process(streams, arguments, environment)
        try:
            await asyncio.to_thread(process.start)
            await asyncio.to_thread(process.join)
        finally:
            process.kill()
        assert process.exitcode is not None
        return Result(process.exitcode, *map(_read_file, output_files))


def _read_file(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class Forked:
    """A running `portolan`; see `start`.

    Args:
        process: The process.
        output: Its standard error, and its standard output unless redirected.
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
        """Run `portolan` with command-line arguments, in an environment.

        Args:
            stdin: The standard input; None: empty.
            stdout: The standard output; None: `output`.
            prepare: A module-level function, called in the process first.
        """
        ours, theirs = FORKS.Pipe(duplex=False)
        input_end, output_end = (
            None if fd is None else Connection(os.dup(fd)) for fd in (stdin, stdout)
        )
        process = _new_process(
            [input_end, output_end or theirs, theirs], arguments, environment, prepare
        )
        await asyncio.to_thread(process.start)
        for end in filter(None, (input_end, output_end, theirs)):
            end.close()
        output = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(output), os.fdopen(os.dup(ours.fileno()), "rb")
        )
        ours.close()
        return cls(process, output)

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process.pid is not None
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send it a signal unless it has exited."""
        if self._process.is_alive():
            os.kill(self.pid, number)

    async def wait(self) -> int:
        """Wait until it exits; return its exit status."""
        await asyncio.to_thread(self._process.join)
        assert self._process.exitcode is not None
        return self._process.exitcode

    async def ended(self) -> tuple[int, str]:
        """Wait until it exits; return its exit status and the rest of its output."""
        output = await self.output.read()
        return await self.wait(), output.decode()


def _new_process(
    streams: Sequence[Connection | None],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    prepare: Callable[[], None] | None = None,
) -> BaseProcess:
    """Return an unstarted process; without a standard input it reads nothing."""
    call = (streams, tuple(arguments), dict(environment), prepare)
    return FORKS.Process(target=_run, args=call, daemon=True)


def _run(
    streams: Sequence[Connection | None],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    prepare: Callable[[], None] | None,
) -> None:
    if _LAST_IMPORT not in sys.modules:
        raise RuntimeError("another module set the preloaded modules of the fork server")
    os.environ.clear()
    # Reading the system's certificate authorities would take half of the time of a command.
    os.environ.update({"SSL_CERT_DIR": os.devnull, **environment})
    for stream, standard_stream in zip(streams, (sys.stdin, sys.stdout, sys.stderr), strict=True):
        if stream is not None:
            os.dup2(stream.fileno(), standard_stream.fileno())
    for stream in filter(None, streams):
        stream.close()
    for standard_stream in (sys.stdout, sys.stderr):
        cast(TextIO, standard_stream).reconfigure(line_buffering=True)  # type: ignore[attr-defined]
    from app.cli import main

    if prepare is not None:
        prepare()
    sys.argv = ["portolan", *arguments]
    main()
