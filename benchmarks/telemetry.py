"""What telemetry costs: throughput with logs, metrics and traces sent by OTLP, and with none sent.

Instances of the service on the same embedded servers: one sends nothing, one sends metrics and the
traces of one request in a hundred, which is recommended, and one the traces of all. Who receives
them speaks OTLP, and decodes it, in a process of its own. All of them count their metrics, since
nobody can switch that off, and write their logs as JSON.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Iterator, Mapping
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Final

from benchmarks.beside import CLASS
from benchmarks.instances import Instance, instances
from benchmarks.load import LoadProcess
from benchmarks.measured import Failed, Measured, Options, Result
from benchmarks.otlp_sink import otlp_sink
from benchmarks.rounds import interleaved
from benchmarks.service import Service
from benchmarks.sides import Bench, Side

__all__ = ["run"]

_BAR: Final = 0.9
_EVERY_S: Final = 5.0
"""Seconds of a turn, and after which metrics are sent: a third of the default, and once in each."""

_CONNECTIONS: Final = 16
_DATABASE: Final = "told"
_WITHOUT: Final = "nothing sent"
_RECOMMENDED: Final = "1 % traced"
_ALL: Final = "100 % traced"
_FIELDS: Final = {
    "title": {"type": "string", "required": True, "max_length": 300},
    "author": {"type": "string"},
    "hits": {"type": "integer", "default": 0},
}


async def run(options: Options) -> Measured:
    """Compare reads and writes of the instances, in turn."""
    results: list[Result] = []
    with _sink() as receiver:
        sent = {"PORTOLAN_OTLP_ENDPOINT": receiver.url, "PORTOLAN_OTLP_EVERY_S": f"{_EVERY_S:g}"}
        environments = {
            name: {"PORTOLAN_LOG_FORMAT": "json", **more}
            for name, more in {
                _WITHOUT: {},
                _RECOMMENDED: {**sent, "PORTOLAN_TRACE_RATIO": "0.01"},
                _ALL: {**sent, "PORTOLAN_TRACE_RATIO": "1"},
            }.items()
        }
        async with LoadProcess() as load, instances(environments) as made:
            first = made[_WITHOUT]
            async with Service.at(first.data, first.admin) as service:
                await service.set_schema(_DATABASE, {"classes": {CLASS: {"fields": _FIELDS}}})
                versions = await service.versions()
            sides = {name: _side(instance) for name, instance in made.items()}
            await sides[_WITHOUT].fill()
            for method in ("GET", "PATCH"):
                results += await _compare(Bench(options, load, _EVERY_S), sides, method)
        spans = receiver.received()
    if not spans:
        raise Failed("nothing was received")
    options.say(f"{spans:,} spans were received")
    return Measured(results, versions)


def _side(instance: Instance) -> Side:
    host, _, port = instance.data.removeprefix("http://").rpartition(":")
    return Side(host, int(port), f"/v1/{_DATABASE}/{CLASS}")


async def _compare(bench: Bench, sides: Mapping[str, Side], method: str) -> list[Result]:
    measures = {
        name: partial(bench.rate, side, method, _CONNECTIONS) for name, side in sides.items()
    }
    tallies = await interleaved(bench.rounds, measures)
    rates = {name: median(tally.rate for tally in of) for name, of in tallies.items()}
    told = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items())
    bench.options.say(f"{method}: {told}")
    bars = {_RECOMMENDED: _BAR, _ALL: None}
    return [
        Result(f"{method}, {name}", "requests/s", rates[name], rates[_WITHOUT], bar)
        for name, bar in bars.items()
    ]


class _Receiver:
    """The receiver's process."""

    def __init__(self, way: Connection) -> None:
        self._way = way
        self.url: str = way.recv()

    def received(self) -> int:
        """Return how many spans have come."""
        self._way.send("how many")
        count: int = self._way.recv()
        return count


@contextlib.contextmanager
def _sink() -> Iterator[_Receiver]:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_receive, args=(theirs,))
    process.start()
    theirs.close()
    try:
        yield _Receiver(ours)
    finally:
        ours.close()
        process.join()


def _receive(way: Connection) -> None:
    """Receive until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with otlp_sink() as sink, contextlib.suppress(EOFError):
        way.send(sink.url)
        while True:
            way.recv()
            way.send(len(sink.spans))
