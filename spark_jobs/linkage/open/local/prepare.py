"""Prepares records as tables of Arrow, as `open.prepare` does on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.linkage.open.hashing import begun, with_ints, with_texts
from spark_jobs.linkage.open.prepared import FREQUENT, prepared, record_numbers
from spark_jobs.linkage.open.profile import SAMPLE, RecordSample, as_sample, sampled_columns
from spark_jobs.linkage.open.spec import KNOWN, FieldComparison, OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows
from spark_jobs.runner.port import InputUnfit, StageContext
from spark_jobs.texts import as_text

__all__ = ["draw_sample", "values", "with_frequencies"]


def values(spec: OpenSpec, context: StageContext) -> pa.Table:
    """Prepare the records of all inputs, all but the frequencies.

    Raises:
        InputUnfit: A column is missing.
    """
    records = prepared(spec, pa.concat_tables(_selected(spec, context)))
    known = _known(spec, context, records.column("row").to_numpy())
    return records.append_column("known", known)


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
