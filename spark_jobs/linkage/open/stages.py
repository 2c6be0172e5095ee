"""The forecast of a run, and its stages, each executed by the run's engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from spark_jobs.linkage.open import on_spark
from spark_jobs.linkage.open.blocks import RuleLoad, heaviest, loads
from spark_jobs.linkage.open.local import blocks as local_blocks
from spark_jobs.linkage.open.local import prepare as local_prepare
from spark_jobs.linkage.open.local import stages as local_stages
from spark_jobs.linkage.open.model import Model
from spark_jobs.linkage.open.plan import (
    EngineChoice,
    check_splink,
    choose,
    complete_spec,
    inputs_fit,
    keep_engine,
    load_engine,
    load_plan,
)
from spark_jobs.linkage.open.prepare import values
from spark_jobs.linkage.open.profile import draw_sample
from spark_jobs.linkage.open.propose import PlanProposal
from spark_jobs.linkage.open.spec import LinkageEngine, OpenSpec
from spark_jobs.linkage.open.whole.matching import check_size
from spark_jobs.runner.port import Block, Forecast, Frame, InputUnfit, StageContext

__all__ = ["STAGES", "forecast"]

_BASE_BYTES: Final = 512 * 2**20
_BYTES_PER_RECORD: Final = 500
_PREPARATION_STAGES: Final = frozenset({"plan", "values"})
"""Stages before the engine is chosen; they depend only on whether the inputs fit one process."""


class _Cost(NamedTuple):
    """The cost of an engine; `starting_s` includes loading its kernels where they compare."""

    starting_s: float
    records_per_s: int
    pairs_per_s: int
    bytes_per_pair: int


_COSTS: Final[Mapping[LinkageEngine, _Cost]] = {
    LinkageEngine.LOCAL: _Cost(1.0, 50_000, 500_000, 120),
    LinkageEngine.SPARK: _Cost(10.0, 20_000, 200_000, 40),
    LinkageEngine.SPLINK: _Cost(10.0, 20_000, 200_000, 400),  # stores both values with each pair
}


class _ForecastBasis(NamedTuple):
    """The inputs of a run's forecast."""

    spec: OpenSpec
    proposal: PlanProposal | None
    choice: EngineChoice
    loads: Sequence[RuleLoad]
    heaviest: tuple[Block, ...]


def forecast(spec: OpenSpec, context: StageContext) -> Forecast:
    """Count rows and pairs; start Spark only if the run needs it.

    Raises:
        InputUnfit: An input is empty, lacks a column, or does not suit the engine.
        SpecInvalid: The model is for other comparisons.
    """
    rows = {input_.name: context.input_rows(input_.name) for input_ in spec.inputs}
    for name, count in rows.items():
        if not count:
            raise InputUnfit(f"{name} has no records.")
    if spec.similarity is not None:
        check_size(sum(rows.values()))
    basis = _count_locally(spec, context) if inputs_fit(spec, context) else None
    return _forecast_of(rows, basis or _count_on_spark(spec, context))


def _count_locally(spec: OpenSpec, context: StageContext) -> _ForecastBasis | None:
    """Return None if the inputs fit one process, but their pairs do not."""
    complete, proposal = complete_spec(spec, context, local_prepare.draw_sample)
    _check_model(complete)
    records = local_prepare.values(complete, context)
    rule_loads = local_blocks.loads(records, complete)
    choice = choose(complete, context, lambda: _pairs(rule_loads))
    if choice.engine is not LinkageEngine.LOCAL:
        return None
    return _ForecastBasis(
        complete, proposal, choice, rule_loads, local_blocks.heaviest(records, complete)
    )


def _count_on_spark(spec: OpenSpec, context: StageContext) -> _ForecastBasis:
    if spec.engine is LinkageEngine.LOCAL:
        choose(spec, context, lambda: 0)  # raises, because the inputs do not fit
    complete, proposal = complete_spec(spec, context, draw_sample)
    _check_model(complete)
    records = values(complete, context).persist()
    try:
        rule_loads = loads(records, complete)
        choice = choose(complete, context, lambda: _pairs(rule_loads))
        if choice.engine is LinkageEngine.SPLINK:
            check_splink(complete, records, _pairs(rule_loads))
        return _ForecastBasis(complete, proposal, choice, rule_loads, heaviest(records, complete))
    finally:
        records.unpersist()


def _check_model(spec: OpenSpec) -> None:
    if spec.model is not None:  # fail before the comparison, not after it
        Model.of_json(spec.model, spec.comparisons)


def _pairs(rule_loads: Sequence[RuleLoad]) -> int:
    return sum(load.pairs for load in rule_loads)


def _forecast_of(rows: Mapping[str, int], basis: _ForecastBasis) -> Forecast:
    total, pairs = sum(rows.values()), _pairs(basis.loads)
    if basis.spec.similarity is not None:
        pairs = total * basis.spec.similarity.neighbours  # an upper bound
    cost, reasons = _COSTS[basis.choice.engine], basis.proposal.reasons if basis.proposal else ()
    work_s = total * len(basis.spec.blocking) / cost.records_per_s + pairs / cost.pairs_per_s
    return Forecast(
        rows=rows,
        pairs=pairs,
        heaviest=basis.heaviest,
        memory_bytes=_BASE_BYTES
        + _BYTES_PER_RECORD * total
        + cost.bytes_per_pair * min(pairs, 10**7),
        time_s=cost.starting_s + work_s,
        notes=(
            f"Engine {basis.choice.engine}: {basis.choice.reason}",
            *_notes(basis.spec, basis.loads, pairs),
            *reasons,
        ),
    )


def _notes(spec: OpenSpec, rule_loads: Sequence[RuleLoad], pairs: int) -> Iterator[str]:
    if pairs > spec.limits.pairs:
        yield f"There are {pairs:,} pairs, and limits.pairs is {spec.limits.pairs:,}: it will stop."
    by_rule = {load.rule: load for load in rule_loads}
    for number, rule in enumerate(spec.blocking):
        if (load := by_rule.get(number)) is None:
            yield f"{rule.name} finds no pairs."
            continue
        yield f"{rule.name}: {load.blocks:,} blocks, {load.pairs:,} pairs."
        if load.heaviest > spec.limits.block_pairs:
            yield (
                f"{rule.name} has a block of {load.heaviest:,} pairs: it will be split by another "
                "field, and what differs there is not compared."
            )


def _engine(spec: OpenSpec, context: StageContext) -> pa.Table:
    complete = load_plan(spec, context)
    prepared = context.output_table
    return keep_engine(
        spec, context, lambda: _pairs(local_blocks.loads(prepared("values"), complete))
    )


def _by_engine(name: str) -> Callable[[OpenSpec, StageContext], Frame]:
    """Return a stage that the run's engine executes."""

    def execute(spec: OpenSpec, context: StageContext) -> Frame:
        if name in _PREPARATION_STAGES:
            local = inputs_fit(spec, context)
        else:
            local = load_engine(spec, context) is LinkageEngine.LOCAL
        return (local_stages.STAGES if local else on_spark.STAGES)[name](spec, context)

    return execute


STAGES: Final[Mapping[str, Callable[[OpenSpec, StageContext], Frame]]] = {
    "engine": _engine,
    **{name: _by_engine(name) for name in on_spark.STAGES},
}
