"""Spans are sent by a process of its own, so that requests do not wait for them.

To encode a span takes several times as long as to make it, and a thread that does so holds the
interpreter for milliseconds at a time. The process is started with the first span, gets batches of
them through a pipe, and ends with it. What it does not take is kept to some length; then the oldest
spans are dropped.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from contextlib import suppress
from typing import Final

import orjson
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource

from app.children import ended, keep
from app.telemetry.log import start_logging
from app.telemetry.settings import TelemetrySettings
from app.telemetry.spans import Span, readable
from mediator.ending import end

__all__ = ["MOST_WAITING", "SpanProcess"]

_log = logging.getLogger("portolan.telemetry")

MOST_WAITING: Final = 8_192
"""Spans that wait for the process."""

_BATCH: Final = 512
_EVERY_S: Final = 1.0
_MOST_UNSENT: Final = 1 << 20
"""Bytes in the pipe, beyond which the process is behind."""

_YIELDING: Final = 5
"""Where cores are few, a request goes before what tells of it."""


class SpanProcess:
    """Takes spans, and hands them to the process that sends them.

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
        self._waiting: deque[Span] = deque(maxlen=MOST_WAITING)
        self._timer: asyncio.TimerHandle | None = None
        self._process: Process | None = None
        self._started = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._dropping = False

    def put(self, span: Span) -> None:
        """Take a span; returns at once."""
        waiting = self._waiting
        if len(waiting) == MOST_WAITING and not self._dropping:
            self._dropping = True
            _log.warning("spans are dropped: who receives them is slow, or away")
        waiting.append(span)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._turn)
            if self._keeping is None:
                keeping = keep("the process that sends spans", self._run)
                self._keeping = asyncio.create_task(keeping)
        elif not len(waiting) % _BATCH:
            self._hand_over()

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

    def _turn(self) -> None:
        self._timer = None
        self._hand_over()

    def _hand_over(self) -> None:
        pipe = self._process and self._process.stdin
        if not pipe or not self._started.is_set():
            return
        while self._waiting and pipe.transport.get_write_buffer_size() < _MOST_UNSENT:
            batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
            pipe.write(orjson.dumps([tuple(span) for span in batch]) + b"\n")
        if not self._waiting:
            self._dropping = False  # said once for as long as it lasts

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
    """Send the spans that come in, until there are no more."""
    for ignored in (signal.SIGINT, signal.SIGTERM):  # who ends the service closes the pipe
        signal.signal(ignored, signal.SIG_IGN)
    told = orjson.loads(sys.stdin.buffer.readline())
    start_logging(told["log_format"])
    with suppress(OSError):  # a container may not allow it
        os.nice(_YIELDING)
    resource = Resource(told["resource"])
    exporter = OTLPSpanExporter(told["endpoint"], timeout=told["timeout_s"])
    for line in sys.stdin.buffer:
        exporter.export([readable(Span(*each), resource) for each in orjson.loads(line)])
    exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK has no types here


if __name__ == "__main__":
    _send()
