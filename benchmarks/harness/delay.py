"""Servers in processes of their own; one is a relay that hands on bytes half a round trip late."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, cast

import uvloop

__all__ = ["LOOPBACK", "delayed", "listening_process"]

LOOPBACK: Final = "127.0.0.1"


@contextmanager
def listening_process(serve: Callable[..., None], *arguments: object) -> Iterator[int]:
    """Run a server in a process of its own while the block runs; yields its port.

    `serve` is called there with a socket that listens, and the arguments.
    """
    with socket.create_server((LOOPBACK, 0), backlog=2048) as listener:
        process = multiprocessing.get_context("spawn").Process(
            target=_uninterrupted, args=(serve, listener, *arguments)
        )
        process.start()
        try:
            yield listener.getsockname()[1]
        finally:
            process.terminate()
            process.join()


def _uninterrupted(serve: Callable[..., None], *arguments: object) -> None:
    # Ctrl-C reaches every process of the terminal; who uses this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(*arguments)


@contextmanager
def delayed(port: int, round_trip_s: float) -> Iterator[int]:
    """Run a relay to a local port that adds to every round trip (seconds); yields its own port."""
    with listening_process(_relay, port, round_trip_s / 2) as at:
        yield at


class _Way(asyncio.Protocol):
    """One direction of a connection; what is received leaves by the other end's transport."""

    def __init__(self, half_s: float) -> None:
        self._half_s = half_s
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.other: asyncio.Future[_Way] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._loop.call_later(self._half_s, self._hand_on, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's
        self._loop.call_later(self._half_s, self._hand_on, None)

    def _hand_on(self, data: bytes | None) -> None:
        if not self.other.done():
            self.other.add_done_callback(lambda _: self._hand_on(data))
            return
        transport = self.other.result().transport
        assert transport is not None
        if data is None:
            transport.close()
        elif not transport.is_closing():
            transport.write(data)


def _relay(listener: socket.socket, port: int, half_s: float) -> None:
    uvloop.run(_serve(listener, port, half_s))


async def _serve(listener: socket.socket, port: int, half_s: float) -> None:
    loop = asyncio.get_running_loop()
    connecting: set[asyncio.Task[None]] = set()

    async def connect(near: _Way) -> None:
        _, far = await loop.create_connection(lambda: _Way(half_s), LOOPBACK, port)
        far.other.set_result(near)
        near.other.set_result(far)

    def accept() -> _Way:
        near = _Way(half_s)
        task = loop.create_task(connect(near))
        connecting.add(task)
        task.add_done_callback(connecting.discard)
        return near

    server = await loop.create_server(accept, sock=listener)
    await server.serve_forever()
