"""The forecast of a run, and its stages, each by the engine of the run."""

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
from spark_jobs.runner.port import Block, Forecast, Frame, InputUnfit, StageContext

__all__ = ["STAGES", "forecast"]

_BASE_BYTES: Final = 512 * 2**20
_BYTES_PER_RECORD: Final = 500
_PREPARING: Final = frozenset({"plan", "values"})
"""Stages before the engine is known: they only need to know whether the inputs fit one process."""


class _Cost(NamedTuple):
    """What an engine takes; `starting_s` is until its kernels are loaded where they compare."""

    starting_s: float
    records_per_s: int
    pairs_per_s: int
    bytes_per_pair: int


_COSTS: Final[Mapping[LinkageEngine, _Cost]] = {
    LinkageEngine.LOCAL: _Cost(1.0, 50_000, 500_000, 120),
    LinkageEngine.SPARK: _Cost(10.0, 20_000, 200_000, 40),
    LinkageEngine.SPLINK: _Cost(10.0, 20_000, 200_000, 400),  # it keeps both values by a pair
}


class _Found(NamedTuple):
    """What the forecast of a run is made of."""

    spec: OpenSpec
    proposal: PlanProposal | None
    choice: EngineChoice
    loads: Sequence[RuleLoad]
    heaviest: tuple[Block, ...]


def forecast(spec: OpenSpec, context: StageContext) -> Forecast:
    """Count rows and pairs; Spark is started only if the run is its own.

    Raises:
        InputUnfit: An input is empty, lacks a column, or is not for the engine.
        SpecInvalid: The model is one of other comparisons.
    """
    rows = {input_.name: context.input_rows(input_.name) for input_ in spec.inputs}
    for name, count in rows.items():
        if not count:
            raise InputUnfit(f"{name} has no records.")
    found = _found_locally(spec, context) if inputs_fit(spec, context) else None
    return _described(rows, found or _found_by_spark(spec, context))


def _found_locally(spec: OpenSpec, context: StageContext) -> _Found | None:
    """None: the inputs fit one process, and their pairs do not."""
    complete, proposal = complete_spec(spec, context, local_prepare.draw_sample)
    _check_model(complete)
    records = local_prepare.values(complete, context)
    found = local_blocks.loads(records, complete)
    choice = choose(complete, context, lambda: _pairs(found))
    if choice.engine is not LinkageEngine.LOCAL:
        return None
    return _Found(complete, proposal, choice, found, local_blocks.heaviest(records, complete))


def _found_by_spark(spec: OpenSpec, context: StageContext) -> _Found:
    if spec.engine is LinkageEngine.LOCAL:
        choose(spec, context, lambda: 0)  # raises: they do not fit
    complete, proposal = complete_spec(spec, context, draw_sample)
    _check_model(complete)
    records = values(complete, context).persist()
    try:
        found = loads(records, complete)
        choice = choose(complete, context, lambda: _pairs(found))
        if choice.engine is LinkageEngine.SPLINK:
            check_splink(complete, records, _pairs(found))
        return _Found(complete, proposal, choice, found, heaviest(records, complete))
    finally:
        records.unpersist()


def _check_model(spec: OpenSpec) -> None:
    if spec.model is not None:  # rather now than after the comparison
        Model.of_json(spec.model, spec.comparisons)


def _pairs(found: Sequence[RuleLoad]) -> int:
    return sum(load.pairs for load in found)


def _described(rows: Mapping[str, int], found: _Found) -> Forecast:
    total, pairs = sum(rows.values()), _pairs(found.loads)
    cost, reasons = _COSTS[found.choice.engine], found.proposal.reasons if found.proposal else ()
    work_s = total * len(found.spec.blocking) / cost.records_per_s + pairs / cost.pairs_per_s
    return Forecast(
        rows=rows,
        pairs=pairs,
        heaviest=found.heaviest,
        memory_bytes=_BASE_BYTES
        + _BYTES_PER_RECORD * total
        + cost.bytes_per_pair * min(pairs, 10**7),
        time_s=cost.starting_s + work_s,
        notes=(
            f"Engine {found.choice.engine}: {found.choice.reason}",
            *_notes(found.spec, found.loads, pairs),
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
    """Return a stage that is executed by the engine of the run."""

    def execute(spec: OpenSpec, context: StageContext) -> Frame:
        if name in _PREPARING:
            local = inputs_fit(spec, context)
        else:
            local = load_engine(spec, context) is LinkageEngine.LOCAL
        return (local_stages.STAGES if local else on_spark.STAGES)[name](spec, context)

    return execute


STAGES: Final[Mapping[str, Callable[[OpenSpec, StageContext], Frame]]] = {
    "engine": _engine,
    **{name: _by_engine(name) for name in on_spark.STAGES},
}
