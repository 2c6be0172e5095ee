"""Encoding people: records per second of one core against clkhash, with the same parameters.

Both read the same people into memory first; only encoding is timed. In full, `encode_file` also
encodes a file of a million people on two cores.
"""

from __future__ import annotations

import asyncio
import csv
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

from benchmarks.harness.competitors import run_competitor
from benchmarks.harness.people import people
from benchmarks.harness.report import Measured, Options, Result
from spark_jobs.linkage.private.clk import Clk, ClkShape, Keys
from spark_jobs.linkage.private.owner import Encoding, encode_file

__all__ = ["run"]

_SHAPE: Final = ClkShape()
_KEYS: Final = Keys(b"a secret of both owners", b"and another one of theirs")
_BAR: Final = 3.0
_MILLION: Final = 1_000_000
_BAR_MILLION_S: Final = 300.0


async def run(options: Options) -> Measured:
    return await asyncio.to_thread(_measure, options)


def _measure(options: Options) -> Measured:
    with TemporaryDirectory(prefix="portolan-bench-") as scratch:
        results = [_compare_with_competitor(Path(scratch), options)]
        if not options.quick:
            results.append(_million(Path(scratch), options))
    return Measured(results, {"rival": "clkhash 0.18.3"})


def _compare_with_competitor(scratch: Path, options: Options) -> Result:
    count = 5_000 if options.quick else 50_000
    rows = [person.values() for person in people(count, Random(options.seed))]
    file = scratch / "people.csv"
    with file.open("w", newline="") as stream:
        csv.writer(stream).writerows(rows)
    ours, theirs = [], []
    for _ in range(3):
        ours.append(_encode_s(rows))
        timing = run_competitor("encode", people=str(file), bits=_SHAPE.bits, hashes=_SHAPE.hashes)
        theirs.append(timing["seconds"])
    rates = count / min(ours), count / min(theirs)
    return Result("people encoded, 1 core", "records/s", *rates, bar=_BAR)


def _encode_s(rows: list[tuple[str, str, str]]) -> float:
    clk, size = Clk(_SHAPE, _KEYS), _SHAPE.bits // 8
    started = perf_counter()
    for row in rows:
        clk.encode(row).to_bytes(size)
    return perf_counter() - started


def _million(scratch: Path, options: Options) -> Result:
    source = scratch / "million.csv"
    with source.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(("id", "given", "surname", "born"))
        rows = enumerate(people(_MILLION, Random(options.seed)))
        writer.writerows((number, *person.values()) for number, person in rows)
    encoding = Encoding(("given", "surname", "born"), shape=_SHAPE, workers=2)
    started = perf_counter()
    encode_file(source, scratch / "encoded.csv", encoding, _KEYS, lambda _: None)
    seconds = perf_counter() - started
    name = "a file of a million people, 2 cores"
    return Result(name, "s", seconds, bar=_BAR_MILLION_S, small_is_good=True)
