"""Counts the pairs of blocks before any pair is generated, and splits heavy blocks.

A block with more pairs than the limit is split by a further field: its records are compared only if
they also agree on that field. Blocks that are still too heavy after two fields are skipped. Both
are reported, because they cost matches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.runner.port import MAX_NAMED_BLOCKS, Block, InputUnfit, StageContext

__all__ = [
    "MAX_SPLITS",
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

MAX_SPLITS: Final = 2


@dataclass(frozen=True, slots=True)
class RuleLoad:
    """The cost of a rule: its blocks with pairs, all their pairs, the pairs of the heaviest."""

    rule: int
    blocks: int
    pairs: int
    heaviest: int


def loads(records: DataFrame, spec: OpenSpec) -> tuple[RuleLoad, ...]:
    rows = (
        _blocks(records, spec)
        .groupBy("rule")
        .agg(f.count("*").alias("blocks"), f.sum("pairs").alias("all"), f.max("pairs").alias("top"))
        .collect()
    )
    return tuple(
        RuleLoad(row["rule"], row["blocks"], row["all"], row["top"])
        for row in sorted(rows, key=lambda row: int(row["rule"]))
    )


def check_loads(spec: OpenSpec, context: StageContext, rule_loads: Sequence[RuleLoad]) -> int:
    """Report the loads of rules; return their number of pairs.

    Raises:
        InputUnfit: The pairs exceed the limit.
    """
    pairs = sum(load.pairs for load in rule_loads)
    if pairs > spec.limits.pairs:
        raise InputUnfit(f"The rules make {pairs:,} pairs; limits.pairs is {spec.limits.pairs:,}.")
    rules = [{**asdict(load), "rule": spec.blocking[load.rule].name} for load in rule_loads]
    context.report("blocking", {"rules": rules})
    return pairs


def heaviest(records: DataFrame, spec: OpenSpec) -> tuple[Block, ...]:
    top = _blocks(records, spec).orderBy(f.desc("pairs"), "rule", "key").limit(MAX_NAMED_BLOCKS)
    example = f.array(*(f.col(f"v{at}") for at in range(len(spec.columns))))
    examples = top.join(_in_blocks(records, example.alias("example")), ["rule", "key"]).groupBy(
        "rule", "key", "records", "pairs"
    )
    rows = examples.agg(f.min("example").alias("example")).collect()
    rows.sort(key=lambda row: (-row["pairs"], row["rule"], row["key"]))
    return tuple(
        Block(block_name(spec, row["rule"], row["example"]), row["records"], row["pairs"])
        for row in rows
    )


def block_name(spec: OpenSpec, number: int, example: Sequence[str | None]) -> str:
    """Name a block of a rule by the values of one of its records."""
    rule = spec.blocking[number]
    values = dict(zip(spec.columns, example, strict=True))
    example_text = ", ".join(f"{column} {values[column]}" for column in sorted(rule.columns))
    return f"{rule.name}: such as {example_text}"


def split_heavy(records: DataFrame, spec: OpenSpec) -> tuple[DataFrame, list[Mapping[str, Any]]]:
    """Split heavy blocks, and skip those that cannot be split.

    Returns:
        The records with their new keys, and a report of each split: rule, field (None: the blocks
        are skipped), blocks, pairs.
    """
    splits: list[Mapping[str, Any]] = []
    splitters: Sequence[Sequence[int]] = ()
    for level in range(MAX_SPLITS + 1):
        heavy = _blocks(records, spec).where(f.col("pairs") > spec.limits.block_pairs)
        by_rule = heavy.groupBy("rule").agg(
            f.count("*").alias("blocks"), f.sum("pairs").alias("all")
        )
        rows = sorted(by_rule.collect(), key=lambda row: int(row["rule"]))
        splitters = splitters or (_splitters(records, spec) if rows else ())
        for row in rows:
            field = splitters[row["rule"]][level] if level < len(splitters[row["rule"]]) else None
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
    counts = records.agg(
        *(f.count_distinct(f"c{k}").alias(f"d{k}") for k in numbers),
        *(f.count(f"c{k}").alias(f"p{k}") for k in numbers),
    ).first()
    assert counts is not None
    return ranked_splitters(
        spec, [counts[f"d{k}"] for k in numbers], [counts[f"p{k}"] for k in numbers]
    )


def ranked_splitters(
    spec: OpenSpec, distinct: Sequence[int], present: Sequence[int]
) -> Sequence[Sequence[int]]:
    """Return for each rule the comparisons whose fields split best: many values, few nulls."""
    ranked = sorted(range(len(spec.comparisons)), key=lambda k: (-distinct[k] * present[k] ** 2, k))
    return [
        [k for k in ranked if not rule.columns & {*spec.comparisons[k].columns}][:MAX_SPLITS]
        for rule in spec.blocking
    ]


def _split(records: DataFrame, heavy: DataFrame, rule: int, field: int | None) -> DataFrame:
    """Give the records of a rule's heavy blocks a finer key, or no key."""
    keys = heavy.where(f.col("rule") == rule).select(f.col("key").alias("heavy"))
    old_key = f.get("keys", f.lit(rule))
    new_key = f.lit(0).cast("long") if field is None else f.xxhash64(old_key, f.col(f"c{field}"))
    key = f.when(f.col("heavy").isNotNull(), new_key).otherwise(old_key)

    def replace_key(old: Column, at: Column) -> Column:
        return f.when(at == rule, key).otherwise(old)

    keyed_records = records.join(f.broadcast(keys), old_key == f.col("heavy"), "left")
    return keyed_records.withColumn("keys", f.transform("keys", replace_key)).drop("heavy")


def _in_blocks(records: DataFrame, *columns: Column) -> DataFrame:
    return records.select(
        f.posexplode("keys").alias("rule", "key"),
        "source",
        f.col("known").isNotNull().alias("old"),
        *columns,
    ).where(f.col("key") != 0)


def _blocks(records: DataFrame, spec: OpenSpec) -> DataFrame:
    """Return ``rule``, ``key``, ``records`` and ``pairs`` of all blocks with pairs."""
    by_source = (
        _in_blocks(records)
        .groupBy("rule", "key", "source")
        .agg(f.count("*").alias("n"), f.sum(f.col("old").cast("long")).alias("o"))
    )
    n, o = pairs_column("n", within=spec.within), pairs_column("o", within=spec.within)
    blocks = by_source.groupBy("rule", "key").agg(
        f.sum("n").alias("records"), (n - o).alias("pairs")
    )
    return blocks.where(f.col("pairs") > 0)


def pairs_column(count: str, *, within: bool) -> Column:
    """Return the pairs of a group's records, counted by source; or only those across sources."""
    all_, squares = f.sum(count) * f.sum(count), f.sum(f.col(count) * f.col(count))
    excluded = f.sum(count) if within else squares
    return ((all_ - excluded) / 2).cast("long")
