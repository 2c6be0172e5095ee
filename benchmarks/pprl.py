"""Private linkage: pairs per second at Tanimoto 0.8 against anonlink at Dice 8/9, on the same data.

Both sides find the same pairs (Tanimoto t is Dice 2t / (1 + t)) from the same vectors, in turn; a
figure counts only if they have found the same ones. In full, the paper's case follows: 100,000
records against 400,000. A GPU, if there is one, is measured alone and with the cores.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.commands.demo.failed import Failed
from benchmarks.harness.competitors import run_competitor
from benchmarks.harness.people import Person, owners
from benchmarks.harness.report import Measured, Options, Result
from spark_jobs.gpu import GpuUnavailable, look_for_gpu
from spark_jobs.linkage.private.blocks import (
    BY_LENGTH,
    BlockComparison,
    BlockMatches,
    PairCounts,
    RecordBlock,
)
from spark_jobs.linkage.private.clk import Clk, ClkShape, Keys
from spark_jobs.linkage.private.gpu.hybrid import execute_all, gpu_for, in_turns
from spark_jobs.linkage.private.limits import ThresholdTables
from spark_jobs.linkage.private.spec import Filters
from spark_jobs.linkage.private.vectors import BitOrder, frequencies

__all__ = ["run"]

_SHAPE: Final = ClkShape()
_KEYS: Final = Keys(b"a secret of both owners", b"and another one of theirs")
_THRESHOLD: Final = Fraction(4, 5)
_DICE: Final = 8 / 9
_BYTES: Final = 128
_BLOCK: Final = 8192
_CORES: Final = (1, 2)
_BAR: Final = 3.0
_BAR_PAPER_S: Final = 60.0

Vectors = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class _Case:
    """Two owners' vectors."""

    left: Vectors
    right: Vectors

    @classmethod
    def random(cls, left: int, right: int, seed: int) -> _Case:
        return cls(*map(_encode, owners(left, right, Random(seed))))

    @property
    def pairs(self) -> int:
        return len(self.left) * len(self.right)


def _encode(people: list[Person]) -> Vectors:
    clk = Clk(_SHAPE, _KEYS)
    empty = _BYTES * 8 - _SHAPE.bits
    encodings = [(clk.encode(person.values()) << empty).to_bytes(_BYTES) for person in people]
    return np.frombuffer(b"".join(encodings), dtype=np.uint8).reshape(-1, _BYTES)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of rows, the seconds from vectors to pairs, and the counts after each filter."""

    pairs: NDArray[np.int64]
    seconds: float
    tally: PairCounts


def _ours(case: _Case, cores: int, filters: Filters = BY_LENGTH, *, gpu: bool = False) -> _Pairs:
    """Count, reorder, sort, split and compare: all the work on vectors."""
    started = perf_counter()
    total = len(case.left) + len(case.right)
    order = BitOrder(frequencies(case.left) + frequencies(case.right), total)
    limits = ThresholdTables.of(_THRESHOLD, order.words * 64)
    comparison = BlockComparison(limits, order.by_selectivity, filters)
    blocks = [_split(order, vectors) for vectors in (case.left, case.right)]
    block_pairs = in_turns([(i, j) for i in range(len(blocks[0])) for j in range(len(blocks[1]))])
    work = [(blocks[0][i], blocks[1][j]) for i, j in block_pairs]
    jobs = [(left, right) for (left, _), (right, _) in work]
    device = gpu_for(comparison) if gpu else None
    matches = execute_all(jobs, lambda job: comparison.compare(*job), cores, device)
    pairs = np.concatenate([_pairs(*match) for match in zip(work, matches, strict=True)])
    tally = PairCounts()
    for match in matches:
        tally.add(match.tally)
    return _Pairs(pairs, perf_counter() - started, tally)


_RankedBlock = tuple[RecordBlock, NDArray[np.int64]]


def _split(order: BitOrder, vectors: Vectors) -> list[_RankedBlock]:
    block, ranks = RecordBlock.of(order.rewritten(vectors))
    return [
        (RecordBlock(block.words[at], block.sizes[at], block.ranks[at]), ranks[at])
        for at in (slice(n, n + _BLOCK) for n in range(0, len(ranks), _BLOCK))
    ]


def _pairs(work: tuple[_RankedBlock, _RankedBlock], matches: BlockMatches) -> NDArray[np.int64]:
    (_, lefts), (_, rights) = work
    i, j, _ = matches.pairs.T
    return np.column_stack((lefts[i], rights[j]))


async def run(options: Options) -> Measured:
    return await asyncio.to_thread(_measure, options)


def _measure(options: Options) -> Measured:
    case = _Case.random(10_000, 20_000, options.seed)
    _ours(_Case(case.left[:100], case.right[:100]), 1)  # compiles
    results = [_compare_with_competitor(case, cores, options) for cores in _CORES]
    results += _filters(case, options)
    if not options.quick:
        case = _Case.random(100_000, 400_000, options.seed)
        results.append(_paper(case, options))
    versions = {"rival": "anonlink 0.15.3"}
    try:
        versions["gpu"] = look_for_gpu()
    except GpuUnavailable as error:
        options.log(f"no GPU is measured: {error.reason}")
    else:
        results += _with_gpu(case, options)
    return Measured(results, versions)


def _compare_with_competitor(case: _Case, cores: int, options: Options) -> Result:
    ours, theirs = [], []
    for _ in range(2 if options.quick else 5):
        ours.append(_ours(case, cores))
        theirs.append(_anonlink(case, cores))
    mine, other = (min(runs, key=lambda pairs_run: pairs_run.seconds) for runs in (ours, theirs))
    if not np.array_equal(_sorted(mine.pairs), _sorted(_exact(case, other.pairs))):
        raise Failed("the two have found different pairs")
    options.log(f"{cores} cores: the same {len(mine.pairs):,} pairs on both sides")
    name = f"pairs compared at Tanimoto 0.8, {cores} core{'s' if cores > 1 else ''}"
    rates = (case.pairs / mine.seconds, case.pairs / other.seconds)
    return Result(name, "pairs/s", *rates, bar=_BAR)


def _anonlink(case: _Case, cores: int) -> _Pairs:
    with TemporaryDirectory(prefix="portolan-bench-") as scratch:
        paths = [Path(scratch) / f"{name}.npy" for name in ("left", "right", "found")]
        np.save(paths[0], case.left)
        np.save(paths[1], case.right)
        # A little below, so that no pair is lost to rounding; `_exact` removes the excess.
        left, right, found = map(str, paths)
        arguments: dict[str, Any] = {"left": left, "right": right, "found": found}
        timing = run_competitor("compare", threshold=_DICE - 1e-9, cores=cores, **arguments)
        return _Pairs(np.load(found), timing["seconds"], PairCounts())


def _exact(case: _Case, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    left, right = case.left[pairs[:, 0]], case.right[pairs[:, 1]]
    common = np.bitwise_count(left & right).sum(axis=1, dtype=np.int64)
    union = np.bitwise_count(left | right).sum(axis=1, dtype=np.int64)
    exact: NDArray[np.int64] = pairs[
        common * _THRESHOLD.denominator >= union * _THRESHOLD.numerator
    ]
    return exact


def _sorted(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    return pairs[np.lexsort(pairs.T)]


def _filters(case: _Case, options: Options) -> list[Result]:
    """Return the share of pairs that each filter of the paper leaves, and the kernel's bound."""
    sample = _Case(case.left[:2000], case.right[:8000])
    paper, bound = _ours(sample, 1, Filters()).tally, _ours(sample, 1).tally
    remaining = {
        "the length filter": paper.after_length,
        "length and prefix": paper.after_prefix,
        "length, prefix and position": paper.after_position,
        "length and the kernel's bound": bound.after_position,
    }
    options.log(
        ", ".join(f"{name} {count / sample.pairs:.3%}" for name, count in remaining.items())
    )
    return [
        Result(f"pairs left by {name}", "% of all", 100 * count / sample.pairs)
        for name, count in remaining.items()
    ]


def _paper(case: _Case, options: Options) -> Result:
    result = _ours(case, 2)
    options.log(f"100,000 x 400,000: {len(result.pairs):,} pairs in {result.seconds:.1f} s")
    name = "100,000 x 400,000 records at Tanimoto 0.8, 2 cores"
    return Result(name, "s", result.seconds, bar=_BAR_PAPER_S, small_is_good=True)


def _with_gpu(case: _Case, options: Options) -> list[Result]:
    _ours(_Case(case.left[:100], case.right[:100]), 0, gpu=True)  # compiles
    cores = os.cpu_count() or 1
    alone = _ours(case, cores)
    results = []
    for name, with_cores in (("a GPU", 0), (f"a GPU and {cores} cores", cores)):
        result = _ours(case, with_cores, gpu=True)
        if result.tally.on_gpu < (1 if with_cores else result.tally.after_length):
            raise Failed("the GPU has not done its part")
        if not np.array_equal(_sorted(result.pairs), _sorted(alone.pairs)):
            raise Failed("the GPU has found other pairs")
        share = result.tally.on_gpu / case.pairs
        options.log(f"{name}: {result.seconds:.2f} s, {share:.0%} of the pairs on the GPU")
        rates = (case.pairs / result.seconds, case.pairs / alone.seconds)
        results.append(Result(f"{name} against {cores} cores", "pairs/s", *rates))
    return results
