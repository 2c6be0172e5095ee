"""Relays and materialisers in a separate process, so that requests do not wait for them.

Under load they use a good part of a core. The service starts the process, sends its settings
through one pipe, receives observations through another, and restarts the process if it dies. The
process ends when the pipe closes, so it never outlives the service.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

import orjson
import uvloop

from app.service.interpreter import spare_the_collector
from app.settings.main import MediatorSettings
from app.settings.telemetry import TelemetrySettings
from app.telemetry.log import start_logging
from mediator.base.child_processes import keep_running, stop_process
from mediator.base.concurrency import end, ended_within
from mediator.base.errors import MediatorError
from mediator.base.observation import (
    ChangesRelayed,
    FeedGapFound,
    FeedRollbackFound,
    Observation,
    Observer,
    StandingQueriesCounted,
)
from mediator.coordination.feed import Retention
from mediator.options import MediatorOptions
from mediator.service import Mediator
from mediator.stores.kinds import make_store

__all__ = ["RelayProcess"]

_log = logging.getLogger("portolan.relaying")

_PROCESS_END_TIMEOUT_S: Final = 10.0
_NICENESS: Final = 5
"""With few cores, requests go before relays, which still get a quarter of a core."""

_STOP_TIMEOUT_S: Final = 5.0
_FORWARDED_EVENTS: Final[dict[str, type[Any]]] = {
    kind.__name__: kind
    for kind in (ChangesRelayed, FeedRollbackFound, FeedGapFound, StandingQueriesCounted)
}


class RelayProcess:
    def __init__(self, settings: MediatorSettings, observe: Observer) -> None:
        self._options = orjson.dumps(_settings_of(settings)) + b"\n"
        self._observe = observe
        self._process: Process | None = None
        self._supervisor: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._supervisor = asyncio.create_task(keep_running("the process of the relays", self._run))

    async def stop(self) -> None:
        if self._supervisor is not None:
            await end([self._supervisor])
        if self._process is not None:
            await stop_process(self._process, _PROCESS_END_TIMEOUT_S)

    async def _run(self) -> None:
        process = self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "app.service.relays", stdin=PIPE, stdout=PIPE, env=_environment()
        )
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):  # the process may have died already
            process.stdin.write(self._options)
            await process.stdin.drain()
        async for line in process.stdout:
            self._forward(line)
        await process.wait()

    def _forward(self, line: bytes) -> None:
        try:
            name, members = orjson.loads(line)
            event: Observation = _FORWARDED_EVENTS[name](**members)
        except (ValueError, LookupError, TypeError):
            _log.warning("the relay process sent an unknown message")
        else:
            self._observe(event)


def _environment() -> dict[str, str]:
    """Omit our settings: the pipe passes them, possibly overridden."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PORTOLAN_")}


def _settings_of(settings: MediatorSettings) -> dict[str, Any]:
    catalogue, coordination = settings.catalogue_url, settings.coordination_url
    assert catalogue is not None
    assert coordination is not None
    return {
        "catalogue_url": catalogue.get_secret_value(),
        "coordination_url": coordination.get_secret_value(),
        "retention": asdict(Retention(settings.feed_changes, settings.feed_hours * 3600)),
        "log_level": logging.getLogger("portolan").level,
        "log_format": TelemetrySettings().log_format,
    }


def _send(event: Observation) -> None:
    if type(event).__name__ in _FORWARDED_EVENTS:
        sys.stdout.buffer.write(orjson.dumps([type(event).__name__, asdict(event)]) + b"\n")
        sys.stdout.buffer.flush()


async def _relay(options: dict[str, Any], pipe: asyncio.StreamReader) -> None:
    retention = Retention(**options.pop("retention"))
    relay_options = MediatorOptions(**options, retention=retention, relaying="only", migrate=False)
    mediator = Mediator(relay_options, make_store, [_send])
    try:
        await mediator.start()
        spare_the_collector()
        await pipe.read()
    except MediatorError as error:
        _log.warning("the relays cannot start: %s", error.detail)
    finally:
        await _stop(mediator)


async def _stop(mediator: Mediator) -> None:
    """Stop the mediator within a time limit; a crash would lose nothing either."""
    if not await ended_within(_STOP_TIMEOUT_S, mediator.stop()):
        _log.warning("the relays do not stop in time; the process exits")
        os._exit(1)


async def _main() -> None:
    loop = asyncio.get_running_loop()
    pipe = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(pipe), sys.stdin)
    options = orjson.loads(await pipe.readline())
    start_logging(options.pop("log_format"))
    logging.getLogger("portolan").setLevel(options.pop("log_level"))
    work = asyncio.current_task()
    assert work is not None
    loop.add_signal_handler(signal.SIGTERM, work.cancel)
    with suppress(asyncio.CancelledError):
        await _relay(options, pipe)


if __name__ == "__main__":
    os.nice(_NICENESS)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service
    uvloop.run(_main())
