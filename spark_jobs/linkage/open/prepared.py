"""Derives the columns of prepared records, by one function for all engines.

``row`` is a hash of source and id, which identifies the record from here on; ``source`` is the
number of the input; ``keys`` has one key per rule (0: no block). Comparison k has its text ``c<k>``
and, where needed, its quantity or day ``n<k>``. ``v<k>`` are the normalised fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.linkage.open.hashing import initial_hashes, with_ints, with_texts
from spark_jobs.linkage.open.key_parts import as_days, part_of
from spark_jobs.linkage.open.quantities import as_quantities
from spark_jobs.linkage.open.rules import Rule
from spark_jobs.linkage.open.spec import FieldComparison, Measure, OpenSpec
from spark_jobs.linkage.open.strings import Rows, join_fields

__all__ = ["FREQUENT", "normalise", "prepare_records", "prepared_schema", "record_numbers"]

FREQUENT: Final = 50_000
"""Values with a known frequency; all others count as rare as the rarest of these."""
_MAX_CHARACTERS: Final = 256
"""Maximum characters of a value that are compared."""


def prepare_records(spec: OpenSpec, table: pa.Table) -> pa.Table:
    """Prepare records: ``source``, ``id``, ``truth``, and the texts of all fields as ``v<k>``."""
    raw = [table.column(f"v{at}").combine_chunks() for at in range(len(spec.columns))]
    normal = [normalise(column) for column in raw]
    source, ids = table.column("source").to_numpy(), table.column("id").combine_chunks()
    columns = {
        "row": record_numbers(source, ids),
        "source": source,
        "id": ids,
        "truth": table.column("truth"),
        **{f"v{at}": column for at, column in enumerate(normal)},
        "keys": _keys(spec, normal, table.num_rows),
    }
    for k, comparison in enumerate(spec.comparisons):
        columns |= _compared_columns(comparison, k, spec.columns, normal, raw)
    return pa.table(columns)


def prepared_schema(spec: OpenSpec) -> pa.Schema:
    fields = ["id", "truth", *(f"v{at}" for at in range(len(spec.columns)))]
    schema = pa.schema([("source", pa.int32()), *((name, pa.string()) for name in fields)])
    return prepare_records(spec, schema.empty_table()).schema


def normalise(values: pa.Array) -> pa.Array:
    """Remove case, accents, punctuation and repeated blanks; an empty result is null."""
    text = pc.utf8_lower(pc.utf8_normalize(values, form="NFKD"))
    text = pc.replace_substring_regex(text, r"[\p{M}'`\x{2019}]", "")
    text = pc.replace_substring_regex(text, r"[^\p{L}\p{N}]+", " ")
    text = pc.utf8_trim_whitespace(
        pc.utf8_slice_codeunits(pc.utf8_trim(text, " "), 0, _MAX_CHARACTERS)
    )
    return pc.if_else(pc.equal(text, ""), None, text)


def record_numbers(source: Rows, ids: pa.Array) -> Rows:
    """Return the number that identifies each record from here on: a hash of source and id."""
    return with_texts(with_ints(initial_hashes(len(ids)), source.astype(np.int32)), ids).view(
        np.int64
    )


def _keys(spec: OpenSpec, normal: Sequence[pa.Array], rows: int) -> pa.Array:
    keys = [_key(rule, spec.columns, normal) for rule in spec.blocking]
    flat = np.stack(keys, axis=1).reshape(-1) if keys else np.empty(0, np.int64)
    ends = np.arange(rows + 1, dtype=np.int32) * len(keys)
    return pa.ListArray.from_arrays(ends, flat)


def _key(rule: Rule, columns: Sequence[str], normal: Sequence[pa.Array]) -> Rows:
    parts = [part_of(part, normal[columns.index(part.column)]) for part in rule.parts]
    complete = np.logical_and.reduce([part.is_valid().to_numpy(False) for part in parts])
    hashes = reduce(with_texts, parts, initial_hashes(len(complete))).view(np.int64)
    return np.where(complete, hashes, 0)


def _compared_columns(
    comparison: FieldComparison,
    k: int,
    columns: Sequence[str],
    normal: Sequence[pa.Array],
    raw: Sequence[pa.Array],
) -> dict[str, pa.Array]:
    positions = [columns.index(column) for column in comparison.columns]
    text = {f"c{k}": join_fields([normal[at] for at in positions])}
    measures = {level.measure for level in comparison.levels}
    if Measure.DAYS in measures:
        return {**text, f"n{k}": as_days(normal[positions[0]])}
    if Measure.NUMBER in measures:
        return {**text, f"n{k}": as_quantities(raw[positions[0]])}
    return text
