"""The forecast of a run: counts rows and pairs, compares nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.blocks import RuleLoad, heaviest, loads
from spark_jobs.linkage.open.engine import choose
from spark_jobs.linkage.open.model import Model
from spark_jobs.linkage.open.plan import complete_spec
from spark_jobs.linkage.open.prepare import values
from spark_jobs.linkage.open.propose import Proposal
from spark_jobs.linkage.open.spec import Engine, OpenSpec
from spark_jobs.runner.port import Forecast, InputUnfit, StageContext

__all__ = ["forecast"]

_RECORDS_PER_S: Final = 20_000
_PAIRS_PER_S: Final = 200_000
_BASE_BYTES: Final = 512 * 2**20
_BYTES_PER_PAIR: Final = {Engine.SPARK: 40, Engine.SPLINK: 400}  # Splink keeps both values by it
_BYTES_PER_RECORD: Final = 500
_STARTING_S: Final = 10.0  # until the processes that compare have loaded their kernels


def forecast(spec: OpenSpec, context: StageContext) -> Forecast:
    """Count rows and pairs.

    Raises:
        InputUnfit: An input is empty, lacks a column, has an id twice, or is not for Splink.
        SpecInvalid: The model is one of other comparisons.
    """
    rows = {input_.name: context.input(input_.name).count() for input_ in spec.inputs}
    for name, count in rows.items():
        if not count:
            raise InputUnfit(f"{name} has no records.")
    complete, proposal = complete_spec(spec, context)
    if complete.model is not None:  # rather now than after the comparison
        Model.of_json(complete.model, complete.comparisons)
    records = values(complete, context).persist()
    try:
        _check_ids(records, complete)
        return _counted(complete, records, rows, proposal)
    finally:
        records.unpersist()


def _check_ids(records: DataFrame, spec: OpenSpec) -> None:
    doubled = records.groupBy("row").agg(f.count("*").alias("n"), f.min("source").alias("source"))
    double = doubled.where(f.col("n") > 1).orderBy("source", "row").first()
    if double is not None:
        raise InputUnfit(f"{spec.inputs[double['source']].name} has an id more than once.")


def _counted(
    spec: OpenSpec, records: DataFrame, rows: Mapping[str, int], proposal: Proposal | None
) -> Forecast:
    rule_loads = loads(records, spec)
    total, pairs = sum(rows.values()), sum(load.pairs for load in rule_loads)
    choice = choose(spec, records, pairs)
    notes = () if spec.engine is Engine.SPARK else (f"Engine {choice.engine}: {choice.reason}",)
    return Forecast(
        rows=rows,
        pairs=pairs,
        heaviest=heaviest(records, spec),
        memory_bytes=_BASE_BYTES
        + _BYTES_PER_RECORD * total
        + _BYTES_PER_PAIR[choice.engine] * min(pairs, 10**7),
        time_s=_STARTING_S + total * len(spec.blocking) / _RECORDS_PER_S + pairs / _PAIRS_PER_S,
        notes=(*notes, *_notes(spec, rule_loads, pairs), *(proposal.reasons if proposal else ())),
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
