"""Proposes references for the schema, and blocking rules for linkage, from dependencies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spark_jobs.profiling.spec import IndSpec
from spark_jobs.runner.specification import ClassSource, FileSource

__all__ = ["LIKELY", "blocking_rules", "references"]

LIKELY: Final = 0.6
"""The minimum score of a proposal."""
_MAX_BLOCK_ROWS: Final = 100
"""Maximum mean number of rows of a table with the same value."""

_Row = Mapping[str, Any]


def references(
    spec: IndSpec, ranked: Iterable[_Row], fields: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return the most likely reference of each column, best first.

    A reference between classes has the ``patch`` of the schema (a merge patch that adds a field),
    and the ``copy`` that fills the field.

    Args:
        ranked: Dependencies of single columns, by descending score.
        fields: The names of the fields of each table.
    """
    best: dict[tuple[str, str], _Row] = {}
    for row in ranked:
        if row["score"] >= LIKELY and row["dependent_table"] != row["referenced_table"]:
            best.setdefault((row["dependent_table"], row["dependent"][0]), row)
    return [_reference(spec, row, fields) for row in best.values()]


def blocking_rules(
    spec: IndSpec, ranked: Iterable[_Row], fields: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return specifications of `linkage.open` for pairs of tables with columns of one name."""
    columns: dict[tuple[str, str], dict[str, None]] = {}
    for row in ranked:
        (name,), tables = row["dependent"], (row["dependent_table"], row["referenced_table"])
        if row["referenced"] == [name] and _blocks(row, name, fields):
            columns.setdefault((min(tables), max(tables)), {})[name] = None
    return [
        {"kind": "linkage.open", "spec": _linkage(spec, tables, names)}
        for tables, names in columns.items()
    ]


def _reference(spec: IndSpec, row: _Row, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    (dependent,), (referenced,) = row["dependent"], row["referenced"]
    proposal = {
        "dependent": f"{row['dependent_table']}.{dependent}",
        "referenced": f"{row['referenced_table']}.{referenced}",
        "score": row["score"],
        "why": row["why"],
    }
    left, right = (spec.sources[row[f"{side}_table"]] for side in ("dependent", "referenced"))
    dependent_fields = fields[row["dependent_table"]]
    new_field = f"{dependent}_ref"
    # These would be wrong: a filter hides objects, and a column that is not a key matches several.
    # A renamed column is not a field of the class.
    if (
        not isinstance(left, ClassSource)
        or not isinstance(right, ClassSource)
        or left.filter is not None
        or right.filter is not None
        or {**left.rename, **right.rename}
        or row["key"] < 1
        or dependent not in dependent_fields
        or dependent == "id"
        or referenced not in fields[row["referenced_table"]]
        or new_field in dependent_fields
    ):
        return proposal
    field = {"type": "reference", "to": right.class_name, "index": True}
    classes: dict[str, Any] = {left.class_name: {"fields": {new_field: field}}}
    source = f"{left.class_name}.{dependent}"
    if referenced != "id":
        indexed = classes.setdefault(right.class_name, {"fields": {}})
        indexed["fields"][referenced] = {"index": True}
        source += f"={right.class_name}.{referenced}.id"
    return {**proposal, "patch": {"classes": classes}, "copy": f"{source}:{new_field}"}


def _blocks(row: _Row, name: str, fields: Mapping[str, Sequence[str]]) -> bool:
    tables = (row["dependent_table"], row["referenced_table"])
    is_selective = row["key"] * _MAX_BLOCK_ROWS >= 1
    return is_selective and name != "id" and all(name in fields[table] for table in tables)


def _linkage(spec: IndSpec, tables: Sequence[str], columns: Iterable[str]) -> dict[str, Any]:
    inputs = dict(_inputs(spec, tables))
    return {"inputs": inputs, "blocking": [[name] for name in columns], "zero_config": True}


def _inputs(spec: IndSpec, tables: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for table in tables:
        source = spec.sources[table]
        rename = {"rename": source.rename} if source.rename else {}
        match source:
            case FileSource(path=path, format=format_):
                yield table, {"file": path, "format": format_, **rename}
            case ClassSource(class_name=name, filter=filter_):
                condition = {} if filter_ is None else {"filter": filter_}
                yield table, {"class": name, **condition, **rename}
