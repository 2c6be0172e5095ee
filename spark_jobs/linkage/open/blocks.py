"""Counts the pairs of blocks before any pair is made, and splits heavy blocks.

A block that holds more pairs than the limit is split by a further field: its records are only
compared if they agree on that too. What is still too heavy after two such fields is left out. Both
are reported, because they cost matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.runner.port import HEAVIEST, Block, InputUnfit, StageContext

__all__ = [
    "MOST_SPLITS",
    "RuleLoad",
    "block_name",
    "check_loads",
    "heaviest",
    "loads",
    "pairs_column",
    "ranked_splitters",
    "split_heavy",
    "split_report",
]

MOST_SPLITS: Final = 2


@dataclass(frozen=True, slots=True)
class RuleLoad:
    """The cost of a rule: its blocks of two records or more, their pairs, those of the heaviest."""

    rule: int
    blocks: int
    pairs: int
    heaviest: int


def loads(records: DataFrame, spec: OpenSpec) -> tuple[RuleLoad, ...]:
    counted = (
        _blocks(records, spec)
        .groupBy("rule")
        .agg(f.count("*").alias("blocks"), f.sum("pairs").alias("all"), f.max("pairs").alias("top"))
        .collect()
    )
    return tuple(
        RuleLoad(row["rule"], row["blocks"], row["all"], row["top"])
        for row in sorted(counted, key=lambda row: int(row["rule"]))
    )


def check_loads(spec: OpenSpec, context: StageContext, found: Sequence[RuleLoad]) -> int:
    """Report the loads of rules; return the number of their pairs.

    Raises:
        InputUnfit: They are more than the limit.
    """
    pairs = sum(load.pairs for load in found)
    if pairs > spec.limits.pairs:
        raise InputUnfit(f"The rules make {pairs:,} pairs; limits.pairs is {spec.limits.pairs:,}.")
    rules = [{**asdict(load), "rule": spec.blocking[load.rule].name} for load in found]
    context.report("blocking", {"rules": rules})
    return pairs


def heaviest(records: DataFrame, spec: OpenSpec) -> tuple[Block, ...]:
    top = _blocks(records, spec).orderBy(f.desc("pairs"), "rule", "key").limit(HEAVIEST)
    example = f.array(*(f.col(f"v{at}") for at in range(len(spec.columns))))
    named = top.join(_in_blocks(records, example.alias("example")), ["rule", "key"]).groupBy(
        "rule", "key", "records", "pairs"
    )
    rows = named.agg(f.min("example").alias("example")).collect()
    rows.sort(key=lambda row: (-row["pairs"], row["rule"], row["key"]))
    return tuple(
        Block(block_name(spec, row["rule"], row["example"]), row["records"], row["pairs"])
        for row in rows
    )


def block_name(spec: OpenSpec, number: int, example: Sequence[str | None]) -> str:
    """Name a block of a rule by the values of one of its records."""
    rule = spec.blocking[number]
    values = dict(zip(spec.columns, example, strict=True))
    of = ", ".join(f"{column} {values[column]}" for column in sorted(rule.columns))
    return f"{rule.name}: such as {of}"


def split_heavy(records: DataFrame, spec: OpenSpec) -> tuple[DataFrame, list[Mapping[str, Any]]]:
    """Split what is too heavy, and leave out what cannot be split.

    Returns:
        The records with their new keys, and for each split or block left out: rule, by which field,
        blocks, pairs.
    """
    splits: list[Mapping[str, Any]] = []
    by: Sequence[Sequence[int]] = ()
    for level in range(MOST_SPLITS + 1):
        heavy = _blocks(records, spec).where(f.col("pairs") > spec.limits.block_pairs)
        by_rule = heavy.groupBy("rule").agg(
            f.count("*").alias("blocks"), f.sum("pairs").alias("all")
        )
        rows = sorted(by_rule.collect(), key=lambda row: int(row["rule"]))
        by = by or (_splitters(records, spec) if rows else ())
        for row in rows:
            field = by[row["rule"]][level] if level < len(by[row["rule"]]) else None
            records = _split(records, heavy, row["rule"], field)
            splits.append(split_report(spec, row["rule"], field, row["blocks"], row["all"]))
        if not rows:
            break
    return records, splits


def split_report(
    spec: OpenSpec, rule: int, field: int | None, blocks: int, pairs: int
) -> Mapping[str, Any]:
    return {
        "rule": spec.blocking[rule].name,
        "blocks": blocks,
        "pairs": pairs,
        "split_by": None if field is None else spec.comparisons[field].name,
    }


def _splitters(records: DataFrame, spec: OpenSpec) -> Sequence[Sequence[int]]:
    numbers = range(len(spec.comparisons))
    counted = records.agg(
        *(f.count_distinct(f"c{k}").alias(f"d{k}") for k in numbers),
        *(f.count(f"c{k}").alias(f"p{k}") for k in numbers),
    ).first()
    assert counted is not None
    return ranked_splitters(
        spec, [counted[f"d{k}"] for k in numbers], [counted[f"p{k}"] for k in numbers]
    )


def ranked_splitters(
    spec: OpenSpec, distinct: Sequence[int], present: Sequence[int]
) -> Sequence[Sequence[int]]:
    """For each rule the comparisons whose fields split best: many values, few nulls."""
    ranked = sorted(range(len(spec.comparisons)), key=lambda k: (-distinct[k] * present[k] ** 2, k))
    return [
        [k for k in ranked if not rule.columns & {*spec.comparisons[k].columns}][:MOST_SPLITS]
        for rule in spec.blocking
    ]


def _split(records: DataFrame, heavy: DataFrame, rule: int, by: int | None) -> DataFrame:
    """Give the records of heavy blocks of a rule a finer key, or none."""
    keys = heavy.where(f.col("rule") == rule).select(f.col("key").alias("heavy"))
    own = f.get("keys", f.lit(rule))
    finer = f.lit(0).cast("long") if by is None else f.xxhash64(own, f.col(f"c{by}"))
    key = f.when(f.col("heavy").isNotNull(), finer).otherwise(own)

    def replaced(old: Column, at: Column) -> Column:
        return f.when(at == rule, key).otherwise(old)

    joined = records.join(f.broadcast(keys), own == f.col("heavy"), "left")
    return joined.withColumn("keys", f.transform("keys", replaced)).drop("heavy")


def _in_blocks(records: DataFrame, *more: Column) -> DataFrame:
    return records.select(
        f.posexplode("keys").alias("rule", "key"),
        "source",
        f.col("known").isNotNull().alias("old"),
        *more,
    ).where(f.col("key") != 0)


def _blocks(records: DataFrame, spec: OpenSpec) -> DataFrame:
    """``rule``, ``key``, ``records`` and ``pairs`` of all blocks in which something is compared."""
    of_source = (
        _in_blocks(records)
        .groupBy("rule", "key", "source")
        .agg(f.count("*").alias("n"), f.sum(f.col("old").cast("long")).alias("o"))
    )
    n, o = pairs_column("n", within=spec.within), pairs_column("o", within=spec.within)
    summed = of_source.groupBy("rule", "key").agg(
        f.sum("n").alias("records"), (n - o).alias("pairs")
    )
    return summed.where(f.col("pairs") > 0)


def pairs_column(count: str, *, within: bool) -> Column:
    """Pairs of all records of a group, counted by source; or those of different sources."""
    all_, squares = f.sum(count) * f.sum(count), f.sum(f.col(count) * f.col(count))
    less = f.sum(count) if within else squares
    return ((all_ - less) / 2).cast("long")
