"""Schema matching: pairs of tables (Valentine) and of ontologies (OAEI anatomy) with known truth.

One configuration serves all: that of a job without settings. The anatomies are matched without a
background, and with Uberon and the Cell Ontology as background (`make competitors`). The truth is
only used for evaluation. F1 and the mean reciprocal rank are means over the pairs of tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import perf_counter
from typing import Final

from benchmarks.harness.known_anatomy import known_concepts
from benchmarks.harness.report import Measured, Options, Result
from benchmarks.harness.schema_pairs import (
    OntologyPair,
    TablePair,
    anatomy,
    synthetic_pair,
    table_pairs,
)
from spark_jobs.matching.schemas.assignment import one_to_one
from spark_jobs.matching.schemas.background import Background
from spark_jobs.matching.schemas.concepts import concept_candidates
from spark_jobs.matching.schemas.confidence import Calibration, calibration_error
from spark_jobs.matching.schemas.elements import Candidate
from spark_jobs.matching.schemas.fields import field_candidates
from spark_jobs.matching.schemas.relations import Relation

__all__ = ["run"]

_MIN_CONFIDENCE: Final = 0.5
_BARS: Final = {"f1": 0.80, "mrr": 0.95, "anatomy": 0.877, "known": 0.94, "error": 0.10}


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """The evaluation of one pair of schemas."""

    precision: float
    recall: float
    reciprocal_rank: float
    confidences: Sequence[float]
    right: Sequence[bool]

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


async def run(options: Options) -> Measured:
    return await asyncio.to_thread(_measure, options)


def _measure(options: Options) -> Measured:
    pairs = [] if options.quick else list(table_pairs())
    results = list(_table_results(pairs or [synthetic_pair()], options))
    if not options.quick:
        results += _ontology_results(options)
    return Measured(results)


def _table_results(pairs: Sequence[TablePair], options: Options) -> Iterator[Result]:
    options.log(f"{len(pairs)} pairs of tables")
    started = perf_counter()
    evaluations = [_evaluate(_match_fields(pair), pair.truth) for pair in pairs]
    seconds = perf_counter() - started
    name = f"{len(pairs)} pairs of tables"
    yield Result(
        f"F1, {name}", "", fmean(evaluation.f1 for evaluation in evaluations), bar=_BARS["f1"]
    )
    rank = fmean(evaluation.reciprocal_rank for evaluation in evaluations)
    yield Result(f"mean reciprocal rank, {name}", "", rank, bar=_BARS["mrr"])
    yield _error(name, evaluations)
    yield Result(f"matching, {name}", "s", seconds)


def _ontology_results(options: Options) -> Iterator[Result]:
    started = perf_counter()
    pair = anatomy()
    if pair is None:
        return
    options.log(f"anatomy, read in {perf_counter() - started:.1f} s")
    yield from _anatomy_results("anatomy", pair, Background(), _BARS["anatomy"])
    background = Background()
    for concept in known_concepts():
        background.add_concept(concept)
    if not len(background):
        options.log("without Uberon, which `make competitors` installs")
        return
    yield from _anatomy_results("anatomy with a background", pair, background, _BARS["known"])


def _anatomy_results(
    name: str, pair: OntologyPair, background: Background, bar: float
) -> Iterator[Result]:
    started = perf_counter()
    candidates = concept_candidates(pair.left, pair.right, background)
    equal = [candidate for candidate in candidates if candidate.relation is Relation.EQUAL]
    seconds = perf_counter() - started
    evaluation = _evaluate(equal, pair.truth)
    yield Result(f"F1, {name}", "", evaluation.f1, bar=bar)
    yield Result(f"precision, {name}", "", evaluation.precision)
    yield Result(f"recall, {name}", "", evaluation.recall)
    yield _error(name, [evaluation])
    yield Result(f"matching, {name}", "s", seconds)


def _match_fields(pair: TablePair) -> list[Candidate]:
    return list(field_candidates(pair.left, pair.right, Background(), _nothing))


def _nothing(_left: str, _right: str) -> None:
    return None


def _evaluate(candidates: Sequence[Candidate], truth: frozenset[tuple[str, str]]) -> _Evaluation:
    bits = {(candidate.left, candidate.right): candidate.bits for candidate in candidates}
    curve = Calibration()
    likely = ((b, *pair) for pair, b in bits.items() if curve.confidence(b) >= _MIN_CONFIDENCE)
    links = list(one_to_one(likely))
    right = [pair in truth for pair in links]
    return _Evaluation(
        precision=sum(right) / len(links) if links else 0.0,
        recall=sum(right) / len(truth),
        reciprocal_rank=fmean(_reciprocal_rank(pair, bits) for pair in truth),
        confidences=[curve.confidence(bits[pair]) for pair in links],
        right=right,
    )


def _reciprocal_rank(pair: tuple[str, str], bits: Mapping[tuple[str, str], float]) -> float:
    if pair not in bits:
        return 0.0
    others = (b for (left, _), b in bits.items() if left == pair[0])
    return 1 / sum(b >= bits[pair] for b in others)


def _error(name: str, evaluations: Sequence[_Evaluation]) -> Result:
    confidences = [confidence for e in evaluations for confidence in e.confidences]
    error = calibration_error(confidences, [is_right for e in evaluations for is_right in e.right])
    return Result(f"calibration error, {name}", "", error, bar=_BARS["error"], small_is_good=True)
