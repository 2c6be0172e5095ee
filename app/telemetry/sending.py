"""Spans are sent by a process of its own, so that requests do not wait for them.

To encode spans takes longer than to tell of them, and a thread that does so holds the interpreter
for milliseconds at a time. The process is started with the first request that is traced, gets
batches through a pipe, and ends with it. What it does not take is kept to some length; then the
oldest is dropped.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any, BinaryIO, Final

import orjson
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource

from app.service.child_processes import ended, keep
from app.settings.telemetry import TelemetrySettings
from app.telemetry.encoding import Encoder
from app.telemetry.log import start_logging
from app.telemetry.spans import Ended
from mediator.base.cancellation import end

__all__ = ["MOST_WAITING", "SpanProcess"]

_log = logging.getLogger("portolan.telemetry")

MOST_WAITING: Final = 8 << 20
"""Bytes that wait for the process: what a request tells of one store call has two hundred."""

_FRESH: Final = 64
"""Requests that are put into words together: the code is warm then, and takes a fraction of the
time. As words they are nothing that the garbage collector has to look at."""

_BATCH: Final = 32
"""So many of these are told together, at most: half a megabyte, if requests call a store once."""

_EVERY_S: Final = 0.25
_MOST_UNSENT: Final = 1 << 20
"""Bytes in the pipe, beyond which the process is behind."""

_READ: Final = 1 << 16
"""Bytes read at a time: what a pipe holds."""

_YIELDING: Final = 10
"""Where cores are few, a request goes before what tells of it."""


class SpanProcess:
    """Takes what was done, and hands it to the process that sends spans of it.

    Args:
        settings: Where to.
        resource: Who tells of them.
    """

    def __init__(self, settings: TelemetrySettings, resource: Resource) -> None:
        told = {
            "endpoint": settings.endpoint("traces"),
            "timeout_s": settings.otlp_timeout_s,
            "log_format": settings.log_format,
            "resource": dict(resource.attributes),
        }
        self._told = orjson.dumps(told) + b"\n"
        self._fresh: list[Ended] = []
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._process: Process | None = None
        self._started = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._dropping = False

    def put(self, done: Ended) -> None:
        """Take what was done; returns at once."""
        self._fresh.append(done)
        if len(self._fresh) >= _FRESH:
            self._word()
        if self._timer is None:
            self._turn_later()
            if self._keeping is None:
                keeping = keep("the process that sends spans", self._run)
                # What becomes of the process is no part of the request that was the first.
                self._keeping = asyncio.get_running_loop().create_task(keeping, context=Context())

    async def close(self, within_s: float) -> None:
        """Send what is left, as far as the receiver takes it in some seconds."""
        if self._keeping is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        due = asyncio.get_running_loop().time() + within_s
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._started.wait()
        self._hand_over()
        await end([self._keeping])
        if self._process is not None:
            await ended(self._process, max(0.0, due - asyncio.get_running_loop().time()))

    def _word(self) -> None:
        """Put into words what was taken."""
        if not self._fresh:
            return
        fresh, self._fresh = self._fresh, []
        words = orjson.dumps([done.plain() for done in fresh])[1:-1]
        self._waiting.append(words)
        self._size += len(words)
        if self._size > MOST_WAITING:
            self._drop()

    def _drop(self) -> None:
        while self._size > MOST_WAITING:
            self._size -= len(self._waiting.popleft())
        if not self._dropping:
            self._dropping = True
            _log.warning("spans are dropped: who receives them is slow, or away")

    def _turn_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._turn)

    def _turn(self) -> None:
        self._timer = None
        self._hand_over()
        if self._waiting:
            self._turn_later()

    def _hand_over(self) -> None:
        self._word()
        pipe = self._process and self._process.stdin
        if not pipe or not self._started.is_set():
            return
        while self._waiting and pipe.transport.get_write_buffer_size() < _MOST_UNSENT:
            pipe.write(b"[%b]\n" % b",".join(self._batch()))
        if not self._waiting:
            self._dropping = False  # said once for as long as it lasts

    def _batch(self) -> list[bytes]:
        waiting = self._waiting
        batch = [waiting.popleft() for _ in range(min(_BATCH, len(waiting)))]
        self._size -= sum(map(len, batch))
        return batch

    async def _run(self) -> None:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app.telemetry.sending", stdin=PIPE
        )
        assert process.stdin is not None
        process.stdin.write(self._told)
        self._started.set()
        try:
            await process.wait()
        finally:
            if process.returncode is not None:
                self._started.clear()


def _send() -> None:
    """Send spans of what comes in, until there is no more."""
    for ignored in (signal.SIGINT, signal.SIGTERM):  # who ends the service closes the pipe
        signal.signal(ignored, signal.SIG_IGN)
    with open(sys.stdin.fileno(), "rb", _READ, closefd=False) as pipe:
        _send_from(pipe)


def _send_from(pipe: BinaryIO) -> None:
    told = orjson.loads(pipe.readline())
    start_logging(told["log_format"])
    with suppress(OSError):  # a container may not allow it
        os.nice(_YIELDING)
    encoder = Encoder(Resource(told["resource"]))
    exporter = OTLPSpanExporter(told["endpoint"], timeout=told["timeout_s"])
    post = _posting(exporter)
    gc.freeze()  # a batch makes thousands of lists, and no cycles
    for line in pipe:
        post(encoder.encode(orjson.loads(line)))
    exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK has no types here


def _posting(exporter: OTLPSpanExporter) -> Callable[[bytes], Any]:
    """Return what sends a body as an exporter does: where, with what, and how often it tries.

    The exporter has no public way to send what is encoded already.
    """
    return exporter._client.export  # noqa: SLF001


if __name__ == "__main__":
    _send()
