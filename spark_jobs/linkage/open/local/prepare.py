"""Prepares records as tables of Arrow, with the columns and values that `open.prepare` gives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.linkage.open.local.hashing import begun, with_ints, with_texts
from spark_jobs.linkage.open.local.key_parts import as_days, part_of
from spark_jobs.linkage.open.prepare import FREQUENT, normalise
from spark_jobs.linkage.open.profile import SAMPLE, RecordSample, as_sample, sampled_columns
from spark_jobs.linkage.open.quantities import as_quantities
from spark_jobs.linkage.open.rules import Rule
from spark_jobs.linkage.open.spec import KNOWN, FieldComparison, Measure, OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows, joined_fields
from spark_jobs.runner.port import InputUnfit, StageContext
from spark_jobs.texts import as_text

__all__ = ["draw_sample", "record_numbers", "values", "with_frequencies"]


def values(spec: OpenSpec, context: StageContext) -> pa.Table:
    """Prepare the records of all inputs, all but the frequencies.

    Raises:
        InputUnfit: A column is missing.
    """
    read = pa.concat_tables(_selected(spec, context))
    raw = [read.column(f"v{at}").combine_chunks() for at in range(len(spec.columns))]
    normal = [normalise(one) for one in raw]
    source, ids = read.column("source").to_numpy(), read.column("id").combine_chunks()
    columns = {
        "row": record_numbers(source, ids),
        "source": source,
        "id": ids,
        "truth": read.column("truth"),
        **{f"v{at}": one for at, one in enumerate(normal)},
        "keys": _keys(spec, normal, read.num_rows),
    }
    for k, comparison in enumerate(spec.comparisons):
        columns |= _compared(comparison, k, spec.columns, normal, raw)
    return pa.table({**columns, "known": _known(spec, context, columns["row"])})


def record_numbers(source: Rows, ids: pa.Array) -> Rows:
    """The number that identifies each record from here on: a hash of its source and its id."""
    return with_texts(with_ints(begun(len(ids)), source.astype(np.int32)), ids).view(np.int64)


def _selected(spec: OpenSpec, context: StageContext) -> Iterator[pa.Table]:
    for number, input_ in enumerate(spec.inputs):
        table = context.input_table(input_.name)
        needed = [*spec.columns, *([spec.truth] if spec.truth else [])]
        if missing := [name for name in needed if name not in table.column_names]:
            raise InputUnfit(f"{input_.name} has no column {', '.join(missing)}.")
        none = pa.nulls(table.num_rows, pa.string())
        yield pa.table(
            {
                "source": np.full(table.num_rows, number, np.int32),
                "id": as_text(table.column("id")),
                "truth": as_text(table.column(spec.truth)) if spec.truth else none,
                **{f"v{at}": as_text(table.column(name)) for at, name in enumerate(spec.columns)},
            }
        )


def _keys(spec: OpenSpec, normal: Sequence[pa.Array], rows: int) -> pa.Array:
    keys = [_key(rule, spec.columns, normal) for rule in spec.blocking]
    flat = np.stack(keys, axis=1).reshape(-1) if keys else np.empty(0, np.int64)
    ends = np.arange(rows + 1, dtype=np.int32) * len(keys)
    return pa.ListArray.from_arrays(ends, flat)


def _key(rule: Rule, columns: Sequence[str], normal: Sequence[pa.Array]) -> Rows:
    parts = [part_of(part, normal[columns.index(part.column)]) for part in rule.parts]
    whole = np.logical_and.reduce([part.is_valid().to_numpy(False) for part in parts])
    hashes = reduce(with_texts, parts, begun(len(whole))).view(np.int64)
    return np.where(whole, hashes, 0)


def _compared(
    comparison: FieldComparison,
    k: int,
    columns: Sequence[str],
    normal: Sequence[pa.Array],
    raw: Sequence[pa.Array],
) -> dict[str, pa.Array]:
    positions = [columns.index(column) for column in comparison.columns]
    text = {f"c{k}": joined_fields([normal[at] for at in positions])}
    measures = {level.measure for level in comparison.levels}
    if Measure.DAYS in measures:
        return {**text, f"n{k}": as_days(normal[positions[0]])}
    if Measure.NUMBER in measures:
        return {**text, f"n{k}": as_quantities(raw[positions[0]])}
    return text


def _known(spec: OpenSpec, context: StageContext, rows: Rows) -> pa.Array:
    """The cluster that each record had before; of several, the first that the table names."""
    if spec.known is None:
        return pa.nulls(len(rows), pa.string())
    table = context.input_table(KNOWN)
    names = [input_.name for input_ in spec.inputs]
    source = pc.index_in(as_text(table.column("source")), pa.array(names))
    there = source.is_valid()
    found = record_numbers(
        source.drop_null().to_numpy(), as_text(table.column("record")).filter(there)
    )
    clusters = as_text(table.column("cluster")).filter(there)
    return clusters.take(pc.index_in(pa.array(rows), pa.array(found)))


def with_frequencies(records: pa.Table, comparisons: Sequence[FieldComparison]) -> pa.Table:
    for k, comparison in enumerate(comparisons):
        if comparison.term_frequency:
            shares = _shares(records.column(f"c{k}").combine_chunks())
            records = records.append_column(f"f{k}", pa.array(shares))
    return records


def _shares(texts: pa.Array) -> Floats:
    """The share of records that have the value of each; of rare values, the least known share."""
    counts = texts.drop_null().value_counts()
    ranked = pa.table({"value": counts.field("values"), "n": counts.field("counts")}).sort_by(
        [("n", "descending"), ("value", "ascending")]
    )
    total = float(len(texts) - texts.null_count)
    frequent = ranked.slice(0, FREQUENT)
    shares = frequent.column("n").to_numpy() / total
    least = float(shares.min()) if len(shares) else 1.0
    at = pc.index_in(texts, frequent.column("value").combine_chunks())
    found = at.is_valid().to_numpy(False) & texts.is_valid().to_numpy(False)
    return np.append(shares, least)[np.where(found, at.fill_null(0).to_numpy(), len(shares))]


def draw_sample(spec: OpenSpec, context: StageContext) -> RecordSample:
    """Draw the same records as `profile.draw_sample`.

    Raises:
        InputUnfit: They have no column in common, or no records.
    """
    tables = [context.input_table(input_.name) for input_ in spec.inputs]
    names = sampled_columns(spec, [table.column_names for table in tables])
    parts = [
        pa.table(
            {
                "id": as_text(table.column("id")),
                "s": np.full(table.num_rows, at, np.int32),
                **{f"v{n}": as_text(table.column(name)) for n, name in enumerate(names)},
            }
        )
        for at, table in enumerate(tables)
    ]
    whole = pa.concat_tables(parts)
    hashes = with_ints(
        with_texts(begun(whole.num_rows), whole.column("id").combine_chunks()),
        whole.column("s").to_numpy(),
    )
    ordered = whole.append_column("h", pa.array(hashes.view(np.int64))).sort_by(
        [("h", "ascending"), ("id", "ascending"), ("s", "ascending")]
    )
    counts = [table.num_rows for table in tables]
    return as_sample(ordered.slice(0, SAMPLE), names, counts, within=spec.within)
