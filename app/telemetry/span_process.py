"""The process that exports spans by the OpenTelemetry SDK, and its client in the service.

In a thread of the service, encoding and sending spans would contend with requests for the
interpreter: at one sampled request in ten, a cached read took a quarter more processor time.
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
from contextvars import Context
from typing import BinaryIO, Final

import orjson
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from app.settings.telemetry import TelemetrySettings
from app.telemetry.log import start_logging
from app.telemetry.spans import MakeSpans, SpanRecord, readable_span
from mediator.base.child_processes import keep_running, stop_process
from mediator.base.concurrency import end

__all__ = ["MAX_WAITING", "SpanProcess"]

_log = logging.getLogger("portolan.telemetry")

MAX_WAITING: Final = 1_024
"""Maximum requests whose spans wait for the process; beyond it the oldest are dropped."""

_CHUNK: Final = 64
"""Requests whose spans are built together: the code is warm then, and takes a fraction of the
time."""

_CHUNK_SPANS: Final = 512
"""Spans that fill a chunk: requests wait while it is built."""

_FLUSH_S: Final = 0.5
_NEXT_CHUNK_S: Final = 0.005
"""Seconds until the next chunk, if more requests wait than fit one."""

_MAX_UNSENT_BYTES: Final = 1 << 20
"""Bytes in the pipe beyond which the process is behind: its receiver is slow, or away."""

_BATCH: Final = 512
"""Spans sent together; the SDK's default."""

_NICE: Final = 10
"""With few cores, requests take precedence over their spans."""


class SpanProcess:
    """Sends spans to the process, which starts with the first span."""

    def __init__(self, settings: TelemetrySettings, resource: Resource) -> None:
        options = {
            "endpoint": settings.endpoint("traces"),
            "timeout_s": settings.otlp_timeout_s,
            "log_format": settings.log_format,
            "resource": dict(resource.attributes),
        }
        self._options = orjson.dumps(options) + b"\n"
        self._waiting: deque[MakeSpans] = deque(maxlen=MAX_WAITING)
        self._dropping = False
        self._timer: asyncio.TimerHandle | None = None
        self._process: Process | None = None
        self._started = asyncio.Event()
        self._supervision: asyncio.Task[None] | None = None

    def put(self, make: MakeSpans) -> None:
        """Queue a function that makes spans, without waiting."""
        waiting = self._waiting
        if len(waiting) == MAX_WAITING and not self._dropping:
            self._dropping = True  # logged once, until the queue is empty
            _log.warning("spans are dropped: the receiver is slow, or away")
        waiting.append(make)
        if len(waiting) % _CHUNK == 0:
            self._write_chunk()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self._flush)
            if self._supervision is None:
                supervision = keep_running("the process that exports spans", self._run)
                # The process does not belong to the first request.
                self._supervision = asyncio.get_running_loop().create_task(
                    supervision, context=Context()
                )

    async def close(self, within_s: float) -> None:
        """Export the remaining spans, as far as the receiver takes them within some seconds."""
        if self._supervision is None:
            return
        if self._timer is not None:
            self._timer.cancel()
        deadline = asyncio.get_running_loop().time() + within_s
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._started.wait()
        while self._write_chunk() is not None and self._waiting:
            pass
        await end([self._supervision])
        if self._process is not None:
            await stop_process(
                self._process, max(0.0, deadline - asyncio.get_running_loop().time())
            )

    def _flush(self) -> None:
        self._timer = None
        pipe = self._write_chunk()
        if self._waiting:
            pause_s = _FLUSH_S if pipe is None else _NEXT_CHUNK_S
            self._timer = asyncio.get_running_loop().call_later(pause_s, self._flush)
        elif pipe is not None:
            pipe.write(b"\n")

    def _write_chunk(self) -> asyncio.StreamWriter | None:
        """Write a chunk of waiting spans to the pipe, and return it; None: it takes none now."""
        pipe, waiting = self._process and self._process.stdin, self._waiting
        if not pipe or not self._started.is_set():
            return None
        if pipe.transport.get_write_buffer_size() >= _MAX_UNSENT_BYTES:
            return None
        spans: list[SpanRecord] = []
        for _ in range(min(_CHUNK, len(waiting))):
            spans += waiting.popleft()()
            if len(spans) >= _CHUNK_SPANS:
                break
        if spans:
            pipe.write(orjson.dumps(spans) + b"\n")
        if not waiting:
            self._dropping = False
        return pipe

    async def _run(self) -> None:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app.telemetry.span_process", stdin=PIPE
        )
        assert process.stdin is not None
        process.stdin.write(self._options)
        self._started.set()
        try:
            await process.wait()
        finally:
            if process.returncode is not None:
                self._started.clear()


def _export_from(pipe: BinaryIO) -> None:
    """Export the spans of each line until the pipe is closed; an empty line ends a batch."""
    options = orjson.loads(pipe.readline())
    start_logging(options["log_format"])
    resource = Resource(options["resource"])
    exporter = OTLPSpanExporter(options["endpoint"], timeout=options["timeout_s"])
    batch: list[ReadableSpan] = []
    for line in pipe:
        records = orjson.loads(line) if line != b"\n" else []
        batch += [readable_span(SpanRecord(**record), resource) for record in records]
        if batch and (len(batch) >= _BATCH or not records):
            # While this waits for the receiver, the pipe fills, and the service drops spans.
            exporter.export(batch)
            batch = []
    if batch:
        exporter.export(batch)
    exporter.shutdown()  # type: ignore[no-untyped-call]  # the SDK has no types here


def _main() -> None:
    for signal_number in (signal.SIGINT, signal.SIGTERM):  # the end of the service closes the pipe
        signal.signal(signal_number, signal.SIG_IGN)
    with suppress(OSError):  # a container may not allow it
        os.nice(_NICE)
    with open(sys.stdin.fileno(), "rb", closefd=False) as pipe:
        _export_from(pipe)


if __name__ == "__main__":
    _main()
