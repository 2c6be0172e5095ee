"""The cost of telemetry: throughput with logs, metrics and traces sent by OTLP, and with none.

Instances of the service on the same embedded servers: one sends nothing, one sends metrics and
traces of a tenth of the requests (twice the default), and one traces of all. The receiver speaks
OTLP in a separate process, and decodes when nothing is measured. Dropped spans would have cost
less, so the traces that arrive are counted. All instances count their metrics, which cannot be
switched off, and write their logs as JSON.
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
_SAMPLE_RATIO: Final = 0.1
_BAR_COMPLETE: Final = 0.95
"""The share of the sampled requests whose traces have to arrive; sampling is random."""

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
        otlp = {"PORTOLAN_OTLP_ENDPOINT": url, "PORTOLAN_OTLP_EVERY_S": f"{_EVERY_S:g}"}
        environments = {
            name: {"PORTOLAN_LOG_FORMAT": "json", "OTEL_SERVICE_NAME": name, **variables}
            for name, variables in {
                _WITHOUT: {},
                _TENTH: {**otlp, "PORTOLAN_TRACE_RATIO": f"{_SAMPLE_RATIO:g}"},
                _ALL: {**otlp, "PORTOLAN_TRACE_RATIO": "1"},
            }.items()
        }
        async with LoadProcess() as load, instances(environments) as started:
            first = started[_WITHOUT]
            async with Service.at(first.data, first.admin) as service:
                schema = {
                    "default": {"system": "redis"},
                    "classes": {CLASS: {"fields": ARTICLE_FIELDS}},
                }
                await service.set_schema(_DATABASE, schema)
                versions = await service.versions()
            targets = {
                name: Target("127.0.0.1", port_of(instance.data), f"/v1/{_DATABASE}/{CLASS}")
                for name, instance in started.items()
            }
            await targets[_WITHOUT].fill()
            for method in ("GET", "PATCH"):
                harness = Harness(options, load, _EVERY_S)
                tallies = await harness.tallies(targets, method, _CONNECTIONS)
                results += _compare(options, tallies, method)
                for name, samples in tallies.items():
                    requests[name] += sum(tally.acknowledged for tally in samples)
                await receiver.call(_count_requests)  # decodes the spans, while nothing is measured
        counts = await receiver.call(_count_requests)
    results += [
        _arrival_result(_TENTH, counts, requests[_TENTH] * _SAMPLE_RATIO, _BAR_COMPLETE),
        _arrival_result(_ALL, counts, requests[_ALL], None),
    ]
    return Measured(results, versions)


def _compare(
    options: Options, tallies: Mapping[str, list[LoadResult]], method: str
) -> list[Result]:
    rates = median_rates(tallies)
    options.log(f"{method}: {per_second(rates)}")
    return [
        Result(f"{method}, {name}", "requests/s", rates[name], rates[_WITHOUT], bar)
        for name, bar in ((_TENTH, _BAR), (_ALL, None))
    ]


def _arrival_result(
    name: str, received: Mapping[str, int], expected: float, bar: float | None
) -> Result:
    return Result(f"traces that arrived, {name}", "requests", received[name], expected, bar)


_SINK: Final = OtlpSink()
_REQUESTS: Final = Counter[str]()
"""In the receiver's process: requests with spans, by the name of the instance."""


def _listen() -> str:
    _SINK.start()
    return _SINK.url


def _count_requests() -> Counter[str]:
    """Return the number of requests with spans, by the name of the instance."""
    for traces in _SINK.traces():
        name = attributes_of(traces.resource.attributes)["service.name"]
        for scope in traces.scope_spans:
            _REQUESTS[name] += sum(span.kind == Span.SPAN_KIND_SERVER for span in scope.spans)
    return _REQUESTS
