"""The stage that prepares road networks: records of lines become records of their pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.matching.similarity.geometry import parse_polyline
from spark_jobs.matching.similarity.lines import Road, RoadSettings
from spark_jobs.matching.similarity.roads import divide_roads
from spark_jobs.matching.similarity.spec import Grid, RoadsSpec, Side, SimilaritySpec
from spark_jobs.matching.similarity.task import RECORDS, SIDES
from spark_jobs.runner.port import InputUnfit

__all__ = ["prepare_records", "prepare_roads"]

_TRUE_VALUES: Final = frozenset({"true", "yes", "1"})

Record = Mapping[str, Any]


def prepare_roads(records: DataFrame, spec: SimilaritySpec) -> DataFrame:
    """Prepare the records of each side in one task: ``side``, ``id``, ``record``.

    Raises:
        InputUnfit: A side has more records than the limit.
    """
    max_count = records.groupBy("side").count().agg(f.max("count")).first()
    if max_count is not None and (max_count[0] or 0) > spec.limits.roads:
        raise InputUnfit(
            f"A source has {max_count[0]:,} roads; limits.roads is {spec.limits.roads:,}."
        )

    def network(side: pa.Table) -> pa.Table:
        rows = prepare_records(side.to_pylist(), spec)
        return pa.Table.from_pylist([*rows], schema=RECORDS)

    return records.groupBy("side").applyInArrow(network, from_arrow_schema(RECORDS))


def prepare_records(rows: Iterable[Record], spec: SimilaritySpec) -> Iterator[dict[str, Any]]:
    """Prepare the network of one side; records without a line stay unchanged.

    Raises:
        InputUnfit: The lines at one place, or near each other at all places, exceed the limits, or
            a piece would have the id of a record.
    """
    assert isinstance(spec.blocking, Grid)
    assert spec.roads is not None
    records = {row["id"]: row for row in rows}
    side = next((row["side"] for row in records.values()), 0)
    field = spec.blocking.grid.name(SIDES[side])
    documents = {id_: json.loads(row["record"]) for id_, row in records.items()}
    roads = [*_roads(documents, field, spec.roads, SIDES[side])]
    limits = spec.limits
    settings = RoadSettings(spec.roads.snap, spec.roads.axes, limits.block_pairs, limits.pairs)
    try:
        pieces = divide_roads(roads, settings)
    except InputUnfit as error:
        raise InputUnfit(f"{SIDES[side]}: {error}") from error
    lines = {road.id for road in roads}
    yield from (dict(row) for id_, row in records.items() if id_ not in lines)
    for road in pieces:
        id_ = _id(road)
        if id_ != road.id and id_ in records:
            raise InputUnfit(f"{SIDES[side]}: the id {id_} of a piece is that of a record.")
        document = {**documents[road.id], "id": id_, field: [[*point] for point in road.points]}
        yield {"side": side, "id": id_, "record": json.dumps(document)}


def _roads(
    documents: Mapping[str, Record], field: str, spec: RoadsSpec, side: Side
) -> Iterator[Road]:
    for id_, document in documents.items():
        line = parse_polyline(document.get(field))
        if line is not None and line.length:
            yield Road(id_, line.points, _is_one_way(document, spec, side))


def _is_one_way(document: Record, spec: RoadsSpec, side: Side) -> bool:
    value = None if spec.one_way is None else document.get(spec.one_way.name(side))
    return str(value).casefold() in _TRUE_VALUES


def _id(road: Road) -> str:
    """Return an id such as ``r1+r2/3``: the third piece of the axis of two lanes."""
    line_id = road.id if road.other is None else f"{road.id}+{road.other}"
    return f"{line_id}/{road.piece}" if road.piece else line_id
