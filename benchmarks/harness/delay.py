"""Servers in separate processes; one is a relay that delays bytes by half a round trip."""

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
    """Run a server in a separate process while the block runs; yield its port.

    `serve` is called there with a listening socket, and the arguments.
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
    # Ctrl-C reaches every process of the terminal; the user of this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(*arguments)


@contextmanager
def delayed(port: int, round_trip_s: float) -> Iterator[int]:
    """Run a relay to a local port that adds to every round trip (seconds); yield its port."""
    with listening_process(_relay, port, round_trip_s / 2) as relay_port:
        yield relay_port


class _Direction(asyncio.Protocol):
    """One direction of a connection; received bytes leave by the other end's transport."""

    def __init__(self, half_s: float) -> None:
        self._half_s = half_s
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.other: asyncio.Future[_Direction] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._loop.call_later(self._half_s, self._forward, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's
        self._loop.call_later(self._half_s, self._forward, None)

    def _forward(self, data: bytes | None) -> None:
        if not self.other.done():
            self.other.add_done_callback(lambda _: self._forward(data))
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

    async def connect(near: _Direction) -> None:
        _, far = await loop.create_connection(lambda: _Direction(half_s), LOOPBACK, port)
        far.other.set_result(near)
        near.other.set_result(far)

    def accept() -> _Direction:
        near = _Direction(half_s)
        task = loop.create_task(connect(near))
        connecting.add(task)
        task.add_done_callback(connecting.discard)
        return near

    server = await loop.create_server(accept, sock=listener)
    await server.serve_forever()
