"""Prepares records as Arrow tables, as `open.prepare` does on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.linkage.open.hashing import initial_hashes, with_ints, with_texts
from spark_jobs.linkage.open.prepared import FREQUENT, prepare_records, record_numbers
from spark_jobs.linkage.open.profile import SAMPLE, RecordSample, as_sample, sampled_columns
from spark_jobs.linkage.open.spec import KNOWN, FieldComparison, OpenSpec
from spark_jobs.linkage.open.strings import Floats, Rows
from spark_jobs.runner.port import InputUnfit, StageContext
from spark_jobs.texts import as_text

__all__ = ["draw_sample", "values", "with_frequencies"]


def values(spec: OpenSpec, context: StageContext) -> pa.Table:
    """Prepare the records of all inputs, without the frequencies.

    Raises:
        InputUnfit: A column is missing.
    """
    records = prepare_records(spec, pa.concat_tables(_select_columns(spec, context)))
    known = _known(spec, context, records.column("row").to_numpy())
    return records.append_column("known", known)


def _select_columns(spec: OpenSpec, context: StageContext) -> Iterator[pa.Table]:
    for number, input_ in enumerate(spec.inputs):
        table = context.input_table(input_.name)
        required = [*spec.columns, *([spec.truth] if spec.truth else [])]
        if missing := [name for name in required if name not in table.column_names]:
            raise InputUnfit(f"{input_.name} has no column {', '.join(missing)}.")
        nulls = pa.nulls(table.num_rows, pa.string())
        yield pa.table(
            {
                "source": np.full(table.num_rows, number, np.int32),
                "id": as_text(table.column("id")),
                "truth": as_text(table.column(spec.truth)) if spec.truth else nulls,
                **{f"v{at}": as_text(table.column(name)) for at, name in enumerate(spec.columns)},
            }
        )


def _known(spec: OpenSpec, context: StageContext, rows: Rows) -> pa.Array:
    """Return each record's known cluster, the first of several in the table."""
    if spec.known is None:
        return pa.nulls(len(rows), pa.string())
    table = context.input_table(KNOWN)
    names = [input_.name for input_ in spec.inputs]
    source = pc.index_in(as_text(table.column("source")), pa.array(names))
    is_input = source.is_valid()
    numbers = record_numbers(
        source.drop_null().to_numpy(), as_text(table.column("record")).filter(is_input)
    )
    clusters = as_text(table.column("cluster")).filter(is_input)
    return clusters.take(pc.index_in(pa.array(rows), pa.array(numbers)))


def with_frequencies(records: pa.Table, comparisons: Sequence[FieldComparison]) -> pa.Table:
    for k, comparison in enumerate(comparisons):
        if comparison.term_frequency:
            shares = _shares(records.column(f"c{k}").combine_chunks())
            records = records.append_column(f"f{k}", pa.array(shares))
    return records


def _shares(texts: pa.Array) -> Floats:
    """Return the share of records with each one's value; for rare values, the least known share."""
    counts = texts.drop_null().value_counts()
    ranked = pa.table({"value": counts.field("values"), "n": counts.field("counts")}).sort_by(
        [("n", "descending"), ("value", "ascending")]
    )
    total = float(len(texts) - texts.null_count)
    frequent = ranked.slice(0, FREQUENT)
    shares = frequent.column("n").to_numpy() / total
    min_share = float(shares.min()) if len(shares) else 1.0
    at = pc.index_in(texts, frequent.column("value").combine_chunks())
    is_frequent = at.is_valid().to_numpy(False) & texts.is_valid().to_numpy(False)
    return np.append(shares, min_share)[
        np.where(is_frequent, at.fill_null(0).to_numpy(), len(shares))
    ]


def draw_sample(spec: OpenSpec, context: StageContext) -> RecordSample:
    """Draw the same records as `profile.draw_sample`.

    Raises:
        InputUnfit: The inputs have no common column, or no records.
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
    records = pa.concat_tables(parts)
    hashes = with_ints(
        with_texts(initial_hashes(records.num_rows), records.column("id").combine_chunks()),
        records.column("s").to_numpy(),
    )
    ordered = records.append_column("h", pa.array(hashes.view(np.int64))).sort_by(
        [("h", "ascending"), ("id", "ascending"), ("s", "ascending")]
    )
    counts = [table.num_rows for table in tables]
    return as_sample(ordered.slice(0, SAMPLE), names, counts, within=spec.within)
