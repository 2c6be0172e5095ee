"""What follows from dependencies: references for the schema, and blocking rules for linkage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from spark_jobs.profiling.spec import IndSpec
from spark_jobs.runner.specification import ClassSource, FileSource

__all__ = ["LIKELY", "blocking_rules", "references"]

LIKELY: Final = 0.6
"""The least score of a proposal."""
_LARGEST_BLOCK: Final = 100
"""Rows of a table that may have one value on average."""

_Row = Mapping[str, Any]


def references(
    spec: IndSpec, ranked: Iterable[_Row], fields: Mapping[str, Sequence[str]]
) -> list[dict[str, Any]]:
    """Return the most likely reference of each column, best first.

    Between classes each has the ``patch`` of the schema (a merge patch, which adds a field), and
    the ``copy`` that gives it values.

    Args:
        ranked: Dependencies of single columns, by falling score.
        fields: Names of the fields of each table.
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
    described = {
        "dependent": f"{row['dependent_table']}.{dependent}",
        "referenced": f"{row['referenced_table']}.{referenced}",
        "score": row["score"],
        "why": row["why"],
    }
    left, right = (spec.sources[row[f"{side}_table"]] for side in ("dependent", "referenced"))
    there = fields[row["dependent_table"]]
    added = f"{dependent}_ref"
    # A filter hides objects, and what is no key leads to several: such references would be wrong.
    # What has another name in this job is no field of the class.
    if (
        not isinstance(left, ClassSource)
        or not isinstance(right, ClassSource)
        or left.filter is not None
        or right.filter is not None
        or {**left.rename, **right.rename}
        or row["key"] < 1
        or dependent not in there
        or dependent == "id"
        or referenced not in fields[row["referenced_table"]]
        or added in there
    ):
        return described
    field = {"type": "reference", "to": right.class_name, "index": True}
    classes: dict[str, Any] = {left.class_name: {"fields": {added: field}}}
    source = f"{left.class_name}.{dependent}"
    if referenced != "id":
        indexed = classes.setdefault(right.class_name, {"fields": {}})
        indexed["fields"][referenced] = {"index": True}
        source += f"={right.class_name}.{referenced}.id"
    return {**described, "patch": {"classes": classes}, "copy": f"{source}:{added}"}


def _blocks(row: _Row, name: str, fields: Mapping[str, Sequence[str]]) -> bool:
    tables = (row["dependent_table"], row["referenced_table"])
    fine = row["key"] * _LARGEST_BLOCK >= 1
    return fine and name != "id" and all(name in fields[table] for table in tables)


def _linkage(spec: IndSpec, tables: Sequence[str], columns: Iterable[str]) -> dict[str, Any]:
    inputs = dict(_inputs(spec, tables))
    return {"inputs": inputs, "blocking": [[name] for name in columns], "zero_config": True}


def _inputs(spec: IndSpec, tables: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for table in tables:
        source = spec.sources[table]
        renamed = {"rename": source.rename} if source.rename else {}
        match source:
            case FileSource(path=path, format=format_):
                yield table, {"file": path, "format": format_, **renamed}
            case ClassSource(class_name=name, filter=filter_):
                filtered = {} if filter_ is None else {"filter": filter_}
                yield table, {"class": name, **filtered, **renamed}
