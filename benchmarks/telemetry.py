"""What telemetry costs: throughput with logs, metrics and traces sent by OTLP, and with none sent.

Instances of the service on the same embedded servers: one sends nothing, one sends metrics and
traces of a tenth of the requests (twice the default), and one traces of all. The receiver speaks
OTLP in a process of its own, and decodes when nothing is measured. Dropped spans would have cost
less, so the traces that arrive are counted. All instances count their metrics, which nobody can
switch off, and write their logs as JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from app.commands.demo.load import LoadProcess, LoadResult, SeparateProcess
from app.commands.demo.service import Service
from benchmarks.harness.comparison import Harness, Target, median_rates
from benchmarks.harness.instances import instances, port_of
from benchmarks.harness.otlp_sink import OtlpSink, attributes_of
from benchmarks.harness.report import Measured, Options, Result, per_second
from benchmarks.harness.shared_servers import ARTICLE_FIELDS, CLASS

__all__ = ["run"]

_BAR: Final = 0.9
_SAMPLED: Final = 0.1
_COMPLETE: Final = 0.95
"""Share of the sampled requests whose traces have to arrive; how many are sampled is chance."""

_EVERY_S: Final = 5.0
"""Seconds of a round, and between exports of metrics: a third of the default, once in each."""

_CONNECTIONS: Final = 16
_DATABASE: Final = "traced"
_WITHOUT: Final = "nothing sent"
_TENTH: Final = "10 % traced"
_ALL: Final = "100 % traced"


async def run(options: Options) -> Measured:
    results: list[Result] = []
    requests: Counter[str] = Counter()
    async with SeparateProcess() as receiver:
        url = await receiver.call(_listen)
        sent = {"PORTOLAN_OTLP_ENDPOINT": url, "PORTOLAN_OTLP_EVERY_S": f"{_EVERY_S:g}"}
        environments = {
            name: {"PORTOLAN_LOG_FORMAT": "json", "OTEL_SERVICE_NAME": name, **more}
            for name, more in {
                _WITHOUT: {},
                _TENTH: {**sent, "PORTOLAN_TRACE_RATIO": f"{_SAMPLED:g}"},
                _ALL: {**sent, "PORTOLAN_TRACE_RATIO": "1"},
            }.items()
        }
        async with LoadProcess() as load, instances(environments) as made:
            first = made[_WITHOUT]
            async with Service.at(first.data, first.admin) as service:
                schema = {
                    "default": {"system": "redis"},
                    "classes": {CLASS: {"fields": ARTICLE_FIELDS}},
                }
                await service.set_schema(_DATABASE, schema)
                versions = await service.versions()
            targets = {
                name: Target("127.0.0.1", port_of(instance.data), f"/v1/{_DATABASE}/{CLASS}")
                for name, instance in made.items()
            }
            await targets[_WITHOUT].fill()
            for method in ("GET", "PATCH"):
                harness = Harness(options, load, _EVERY_S)
                tallies = await harness.tallies(targets, method, _CONNECTIONS)
                results += _compare(options, tallies, method)
                for name, of in tallies.items():
                    requests[name] += sum(tally.acknowledged for tally in of)
                await receiver.call(_received)  # decodes what came, while nothing is measured
        received = await receiver.call(_received)
    results += [
        _arrived(_TENTH, received, requests[_TENTH] * _SAMPLED, _COMPLETE),
        _arrived(_ALL, received, requests[_ALL], None),
    ]
    return Measured(results, versions)


def _compare(
    options: Options, tallies: Mapping[str, list[LoadResult]], method: str
) -> list[Result]:
    rates = median_rates(tallies)
    options.say(f"{method}: {per_second(rates)}")
    return [
        Result(f"{method}, {name}", "requests/s", rates[name], rates[_WITHOUT], bar)
        for name, bar in ((_TENTH, _BAR), (_ALL, None))
    ]


def _arrived(name: str, received: Mapping[str, int], expected: float, bar: float | None) -> Result:
    return Result(f"traces that arrived, {name}", "requests", received[name], expected, bar)


_SINK: Final = OtlpSink()
_REQUESTS: Final = Counter[str]()
"""What the receiver's process has received and counted."""


def _listen() -> str:
    _SINK.start()
    return _SINK.url


def _received() -> Counter[str]:
    """Return of how many requests spans have come, by the name of who answered them."""
    for traces in _SINK.traces():
        name = attributes_of(traces.resource.attributes)["service.name"]
        for scope in traces.scope_spans:
            _REQUESTS[name] += sum(span.kind == Span.SPAN_KIND_SERVER for span in scope.spans)
    return _REQUESTS
