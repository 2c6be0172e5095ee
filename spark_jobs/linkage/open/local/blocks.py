"""Counts the pairs of blocks, and splits heavy blocks, as `open.blocks` does on Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_jobs.linkage.open.blocks import (
    MAX_SPLITS,
    RuleLoad,
    block_name,
    ranked_splitters,
    split_report,
)
from spark_jobs.linkage.open.hashing import initial_hashes, with_longs, with_texts
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.strings import Rows
from spark_jobs.runner.port import MAX_NAMED_BLOCKS, Block

__all__ = ["group_pairs", "heaviest", "key_matrix", "loads", "split_heavy"]


class _Blocks(NamedTuple):
    """The blocks of one rule that have pairs."""

    keys: Rows
    records: Rows
    pairs: Rows


def key_matrix(records: pa.Table) -> Rows:
    """Return the keys of all records under all rules; 0: no block."""
    keys = records.column("keys").combine_chunks()
    matrix: Rows = keys.flatten().to_numpy().reshape(records.num_rows, -1)
    return matrix


def group_pairs(groups: Rows, sources: Rows, selected: NDArray[np.bool_], *, within: bool) -> Rows:
    """Return each group's number of pairs of selected members; or only of pairs across sources."""
    width = int(sources.max(initial=0)) + 1
    cells = np.bincount(
        groups[selected] * width + sources[selected],
        minlength=(int(groups.max(initial=-1)) + 1) * width,
    ).reshape(-1, width)
    total = cells.sum(axis=1)
    excluded = total if within else (cells * cells).sum(axis=1)
    pairs: Rows = (total * total - excluded) // 2
    return pairs


def _blocks(records: pa.Table, keys: Rows, *, within: bool) -> _Blocks:
    blocked = keys != 0
    distinct, groups, sizes = np.unique(keys[blocked], return_inverse=True, return_counts=True)
    sources = records.column("source").to_numpy()[blocked].astype(np.int64)
    is_known = records.column("known").combine_chunks().is_valid().to_numpy(False)[blocked]
    all_records = np.ones(len(groups), np.bool_)
    pairs = group_pairs(groups, sources, all_records, within=within)
    pairs -= group_pairs(groups, sources, is_known, within=within)
    nonempty = pairs > 0
    return _Blocks(distinct[nonempty], sizes[nonempty], pairs[nonempty])


def _blocks_by_rule(records: pa.Table, spec: OpenSpec) -> list[_Blocks]:
    keys = key_matrix(records)
    return [
        _blocks(records, keys[:, rule], within=spec.within) for rule in range(len(spec.blocking))
    ]


def loads(records: pa.Table, spec: OpenSpec) -> tuple[RuleLoad, ...]:
    return tuple(
        RuleLoad(rule, len(blocks.keys), int(blocks.pairs.sum()), int(blocks.pairs.max()))
        for rule, blocks in enumerate(_blocks_by_rule(records, spec))
        if len(blocks.keys)
    )


def heaviest(records: pa.Table, spec: OpenSpec) -> tuple[Block, ...]:
    candidates = [
        (-pairs, rule, key, size)
        for rule, blocks in enumerate(_blocks_by_rule(records, spec))
        for pairs, key, size in _top(blocks)
    ]
    keys = key_matrix(records)
    return tuple(
        Block(block_name(spec, rule, _example(records, spec, keys[:, rule] == key)), size, -pairs)
        for pairs, rule, key, size in sorted(candidates)[:MAX_NAMED_BLOCKS]
    )


def _top(blocks: _Blocks) -> list[tuple[int, int, int]]:
    top = np.lexsort((blocks.keys, -blocks.pairs))[:MAX_NAMED_BLOCKS]
    columns = (blocks.pairs, blocks.keys, blocks.records)
    return list(zip(*(column[top].tolist() for column in columns), strict=True))


def _example(records: pa.Table, spec: OpenSpec, members: NDArray[np.bool_]) -> Sequence[str | None]:
    columns = records.select([f"v{at}" for at in range(len(spec.columns))])
    rows = columns.filter(pa.array(members)).to_pylist()
    # Null sorts before any value, as in Spark.
    minimum = min(tuple((value is not None, value or "") for value in row.values()) for row in rows)
    return [value if is_present else None for is_present, value in minimum]


def split_heavy(records: pa.Table, spec: OpenSpec) -> tuple[pa.Table, list[Mapping[str, Any]]]:
    """Split heavy blocks, and skip those that cannot be split.

    Returns:
        The records with their new keys, and a report of each split: rule, field (None: the blocks
        are skipped), blocks, pairs.
    """
    splits: list[Mapping[str, Any]] = []
    keys, splitters = key_matrix(records).copy(), _splitters(records, spec)
    for level in range(MAX_SPLITS + 1):
        split_rules = 0
        for rule, fields in enumerate(splitters):
            blocks = _blocks(records, keys[:, rule], within=spec.within)
            heavy = blocks.pairs > spec.limits.block_pairs
            if not heavy.any():
                continue
            split_rules += 1
            field = fields[level] if level < len(fields) else None
            _split(records, keys, rule, blocks.keys[heavy], field)
            pairs = int(blocks.pairs[heavy].sum())
            splits.append(split_report(spec, rule, field, int(heavy.sum()), pairs))
        if not split_rules:
            break
    at = records.column_names.index("keys")
    lists = pa.ListArray.from_arrays(
        np.arange(len(keys) + 1, dtype=np.int32) * keys.shape[1], keys.reshape(-1)
    )
    return records.set_column(at, "keys", lists), splits


def _splitters(records: pa.Table, spec: OpenSpec) -> Sequence[Sequence[int]]:
    columns = [records.column(f"c{k}").combine_chunks() for k in range(len(spec.comparisons))]
    distinct = [len(column.drop_null().unique()) for column in columns]
    present = [len(column) - column.null_count for column in columns]
    return ranked_splitters(spec, distinct, present)


def _split(records: pa.Table, keys: Rows, rule: int, heavy: Rows, field: int | None) -> None:
    """Give the records of a rule's heavy blocks a finer key, or no key."""
    members = np.flatnonzero(np.isin(keys[:, rule], heavy))
    if field is None:
        keys[members, rule] = 0
        return
    texts = records.column(f"c{field}").combine_chunks().take(pa.array(members))
    hashes = with_longs(initial_hashes(len(members)), keys[members, rule])
    keys[members, rule] = with_texts(hashes, texts).view(np.int64)
