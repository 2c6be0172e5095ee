"""The forecast of a run, and its stages: samples of values, candidates, correspondences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from spark_jobs.matching.schemas.assignment import one_to_one
from spark_jobs.matching.schemas.background import (
    MAX_STATEMENTS,
    Background,
    Path,
    parse_statement,
)
from spark_jobs.matching.schemas.confidence import Calibration, calibration_error
from spark_jobs.matching.schemas.elements import Candidate, Element
from spark_jobs.matching.schemas.feedback import Decisions, parse_decisions
from spark_jobs.matching.schemas.fields import field_candidates
from spark_jobs.matching.schemas.json_schemas import parse_json_schema
from spark_jobs.matching.schemas.mapping import field_mapping
from spark_jobs.matching.schemas.relations import Relation
from spark_jobs.matching.schemas.sampling import SAMPLES, column_names, elements_of, sample_table
from spark_jobs.matching.schemas.spec import (
    FEEDBACK,
    Assignment,
    Form,
    SchemaMatchingSpec,
)
from spark_jobs.result_ids import result_id
from spark_jobs.runner.port import Forecast, Frame, InputUnfit, StageContext
from spark_jobs.runner.specification import ClassSource

if TYPE_CHECKING:  # tables need no rdflib
    from spark_jobs.matching.schemas.ontologies import Ontology

__all__ = ["STAGES", "forecast"]

_SIDES: Final = ("left", "right")
_CELLS_PER_S: Final = 1_000_000
_PAIRS_PER_S: Final = 3_000
_CONCEPTS_PER_S: Final = 600
_LABELS_PER_S: Final = 1_000
_LABEL_PAIRS_PER_S: Final = 200_000_000
_BASE_BYTES: Final = 256 * 2**20
_BYTES_PER_COLUMN: Final = 500_000
_BYTES_PER_LABEL: Final = 10_000
_BYTES_PER_CONCEPT: Final = 20_000
"""Memory for a concept of the background, mostly while its text is read."""
_MAX_TEXTS: Final = 10_000
_MAX_CHARACTERS: Final = 64 * 2**20
_MAX_FEEDBACK: Final = 100_000
_ACCEPTED_REASON: Final = "people accepted it"
_CANDIDATES: Final = pa.schema(
    [
        ("left", pa.string()),
        ("right", pa.string()),
        ("relation", pa.string()),
        ("bits", pa.float64()),
        ("evidence", pa.list_(pa.string())),
    ]
)
_RESULT: Final = pa.schema(
    [
        ("id", pa.string()),
        ("left", pa.string()),
        ("right", pa.string()),
        ("relation", pa.string()),
        ("confidence", pa.float64()),
        ("bits", pa.float64()),
        ("evidence", pa.string()),
    ]
)
_FIELD_TYPES: Final[Mapping[str, str]] = {
    "tinyint": "integer",
    "smallint": "integer",
    "int": "integer",
    "bigint": "integer",
    "float": "float",
    "double": "float",
    "boolean": "boolean",
    "timestamp": "timestamp",
    "binary": "binary",
}
"""Schema types of Spark's types; all others are read as texts."""


def forecast(spec: SchemaMatchingSpec, context: StageContext) -> Forecast:
    """Count rows, and the pairs of columns or labels; read ontologies, but compare nothing.

    Raises:
        InputUnfit: A side has no columns, properties or concepts, too many, or too many labels.
    """
    rows = {input_.name: context.input_rows(input_.name) for input_ in spec.inputs}
    sizes = [_size(spec, context, side) for side in _SIDES]
    concept_count = sum(len(_ontology(context, name)) for name in spec.ontologies)
    tables = [side for side in _SIDES if getattr(spec, side).form is Form.TABLE]
    pairs = sizes[0] * sizes[1]
    if spec.left.form is Form.ONTOLOGY:
        seconds = sum(sizes) / _LABELS_PER_S + pairs / _LABEL_PAIRS_PER_S
        memory = _BYTES_PER_LABEL * sum(sizes)
    else:
        cells = sum(rows[side] * len(context.input(side).columns) for side in tables)
        seconds = cells / _CELLS_PER_S + pairs / _PAIRS_PER_S
        memory = _BYTES_PER_COLUMN * sum(sizes)
    empty = [side for side in tables if not rows[side]]
    notes = tuple(f"{side} has no rows: only names and types are compared." for side in empty)
    seconds += concept_count / _CONCEPTS_PER_S
    memory += _BASE_BYTES + _BYTES_PER_CONCEPT * concept_count
    return Forecast(rows, pairs, memory_bytes=memory, time_s=seconds, notes=notes)


def _size(spec: SchemaMatchingSpec, context: StageContext, side: str) -> int:
    """Count the compared columns, properties, or labels of concepts."""
    match getattr(spec, side).form:
        case Form.TABLE:
            return len(column_names(context.input(side), side))
        case Form.JSON_SCHEMA:
            return len(parse_json_schema(_text(context, side), side))
        case _:
            return _labels(context, side)


def _text(context: StageContext, side: str) -> str:
    """Return the concatenated rows of a document, in the order of their ids."""
    frame = context.input(side).where(f.col("text").isNotNull())
    size = frame.agg(f.count("*"), f.sum(f.length("text"))).first() or (0, 0)
    if not size[0]:
        raise InputUnfit(f"{side} has no row with a text.")
    if size[0] > _MAX_TEXTS or size[1] > _MAX_CHARACTERS:
        raise InputUnfit(
            f"{side} has {size[0]:,} rows and {size[1]:,} characters; "
            f"{_MAX_TEXTS:,} and {_MAX_CHARACTERS:,} are read at most."
        )
    rows = frame.select("id", "text").toArrow().sort_by("id")
    return "".join(str(text) for text in rows.column("text").to_pylist())


def _ontology(context: StageContext, side: str) -> Ontology:
    from spark_jobs.matching.schemas.ontologies import parse_ontology  # noqa: PLC0415 - rdflib

    return parse_ontology(_text(context, side), side)


def _labels(context: StageContext, side: str) -> int:
    from spark_jobs.matching.schemas.ontologies import check_labels  # noqa: PLC0415 - rdflib

    return check_labels(_ontology(context, side), side)


def _profiles(spec: SchemaMatchingSpec, context: StageContext) -> DataFrame:
    """Return the samples of the tables; other forms have none."""
    schema = pa.schema([("side", pa.string()), *SAMPLES])
    frame = context.spark.createDataFrame([], from_arrow_schema(schema))
    for side in _SIDES:
        if getattr(spec, side).form is Form.TABLE:
            frame = frame.unionByName(sample_table(context.input(side), side))
    return frame


def _candidates(spec: SchemaMatchingSpec, context: StageContext) -> pa.Table:
    decisions = _decisions(spec, context)
    background = _background(spec, context, decisions)
    ontologies = spec.left.form is Form.ONTOLOGY
    find = _concept_candidates if ontologies else _field_candidates
    rows = [asdict(candidate) for candidate in find(spec, context, background, decisions)]
    context.count("candidates", len(rows))
    return pa.Table.from_pylist(rows, _CANDIDATES)


def _field_candidates(
    spec: SchemaMatchingSpec,
    context: StageContext,
    background: Background,
    _decisions: Decisions,
) -> Iterator[Candidate]:
    left, right = (_elements(spec, context, side) for side in _SIDES)

    def query(term: str, other: str) -> Path | None:
        return background.query(
            term, other, max_length=spec.max_path_length, min_score=spec.min_path_score
        )

    def progress(done: int) -> None:
        context.progress(done, len(left))

    context.count("pairs compared", len(left) * len(right))
    return field_candidates(left, right, background, query, progress)


def _elements(spec: SchemaMatchingSpec, context: StageContext, side: str) -> Sequence[Element]:
    if getattr(spec, side).form is Form.JSON_SCHEMA:
        return parse_json_schema(_text(context, side), side)
    return elements_of(context.input(side), context.output("profiles"), side)


def _concept_candidates(
    spec: SchemaMatchingSpec,
    context: StageContext,
    background: Background,
    decisions: Decisions,
) -> Iterator[Candidate]:
    from spark_jobs.matching.schemas.concepts import concept_candidates  # noqa: PLC0415 - rdflib

    left, right = (_ontology(context, side) for side in _SIDES)
    return concept_candidates(
        left,
        right,
        background,
        min_score=spec.min_path_score,
        accepted=decisions.accepted,
        progress=context.progress,
    )


def _background(
    spec: SchemaMatchingSpec, context: StageContext, decisions: Decisions
) -> Background:
    background = Background(decisions.statements())
    rows = sum(map(context.input_rows, spec.statements))
    if rows > MAX_STATEMENTS:
        raise InputUnfit(f"background has more than {MAX_STATEMENTS:,} rows.")
    for name in spec.statements:
        for row in context.input_table(name).to_pylist():
            background.add(parse_statement(row))
    for name in spec.ontologies:
        concepts = _ontology(context, name).values()
        rows += sum(concept.statements for concept in concepts)
        if rows > MAX_STATEMENTS:
            raise InputUnfit(
                f"{name} states too much: a background has {MAX_STATEMENTS:,} "
                "names and relations at most."
            )
        for concept in concepts:
            background.add_concept(concept)
    if spec.background is not None:
        context.count("terms of the background", len(background))
    return background


def _decisions(spec: SchemaMatchingSpec, context: StageContext) -> Decisions:
    if spec.feedback is None:
        return parse_decisions(spec.decisions, ())
    if context.input_rows(FEEDBACK) > _MAX_FEEDBACK:
        raise InputUnfit(f"feedback has more than {_MAX_FEEDBACK:,} rows.")
    return parse_decisions(spec.decisions, context.input_table(FEEDBACK).sort_by("id").to_pylist())


def _correspondences(spec: SchemaMatchingSpec, context: StageContext) -> pa.Table:
    decisions = _decisions(spec, context)
    candidates = [
        Candidate(
            **row | {"relation": Relation(row["relation"]), "evidence": tuple(row["evidence"])}
        )
        for row in context.output_table("candidates").to_pylist()
    ]
    curve = _calibrate(candidates, decisions, context)
    correspondences = sorted(
        _choose(spec, candidates, decisions, curve),
        key=lambda pair: (-pair[1], pair[0].left, pair[0].right, pair[0].relation),
    )
    context.count("correspondences", len(correspondences))
    _report_mapping(spec, context, [candidate for candidate, _ in correspondences])
    rows = [_row(candidate, confidence) for candidate, confidence in correspondences]
    return pa.Table.from_pylist(rows, _RESULT)


def _calibrate(
    candidates: Sequence[Candidate], decisions: Decisions, context: StageContext
) -> Calibration:
    """Fit the curve to decisions; report the calibration error without them."""
    labelled = [
        (candidate.bits, decisions.pairs[candidate.left, candidate.right])
        for candidate in candidates
        if candidate.relation is Relation.EQUAL
        and (candidate.left, candidate.right) in decisions.pairs
    ]
    curve = Calibration.fit(labelled)
    default_curve = Calibration()
    context.report(
        "calibration",
        {
            "decisions": len(labelled),
            "error_before": calibration_error(
                [default_curve.confidence(bits) for bits, _ in labelled],
                [right for _, right in labelled],
            ),
            "slope": curve.slope,
            "offset": curve.offset,
        },
    )
    return curve


def _choose(
    spec: SchemaMatchingSpec,
    candidates: Sequence[Candidate],
    decisions: Decisions,
    curve: Calibration,
) -> Iterator[tuple[Candidate, float]]:
    accepted = decisions.accepted
    best = {
        (candidate.left, candidate.right): candidate
        for candidate in candidates
        if candidate.relation is Relation.EQUAL
    }
    for left, right in sorted(accepted):
        evidence = best[left, right].evidence if (left, right) in best else ()
        bits = best[left, right].bits if (left, right) in best else 0.0
        yield Candidate(left, right, bits, Relation.EQUAL, (_ACCEPTED_REASON, *evidence)), 1.0
    used = {left for left, _ in accepted}, {right for _, right in accepted}
    open_ = [
        (candidate, confidence)
        for candidate in candidates
        if (candidate.left, candidate.right) not in decisions.pairs
        and (confidence := curve.confidence(candidate.bits)) >= spec.min_confidence
    ]
    if spec.assignment is Assignment.MANY_TO_MANY:
        yield from open_
        return
    equal = {
        (candidate.left, candidate.right): (candidate, confidence)
        for candidate, confidence in open_
        if candidate.relation is Relation.EQUAL
        and candidate.left not in used[0]
        and candidate.right not in used[1]
    }
    pairs = list(one_to_one((candidate.bits, *pair) for pair, (candidate, _) in equal.items()))
    yield from (equal[pair] for pair in pairs)
    # Other relations are not exclusive: a car is a vehicle, and so are other things.
    yield from (pair for pair in open_ if pair[0].relation is not Relation.EQUAL)


def _row(candidate: Candidate, confidence: float) -> dict[str, Any]:
    evidence = "; ".join(candidate.evidence) or "there is no evidence but the decision"
    return asdict(candidate) | {
        "id": result_id(candidate.left, candidate.right, candidate.relation),
        "confidence": confidence,
        "evidence": f"{evidence[:1].upper()}{evidence[1:]}.",
    }


def _report_mapping(
    spec: SchemaMatchingSpec, context: StageContext, correspondences: Sequence[Candidate]
) -> None:
    """Report a change of the right side, if it is a table, by its one-to-one equalities."""
    source = spec.right.source
    if spec.right.form is not Form.TABLE:
        return
    name = source.class_name if isinstance(source, ClassSource) else "right"
    types = {
        source.in_table(field.name): _FIELD_TYPES.get(field.dataType.simpleString(), "string")
        for field in context.input("right").schema
        if field.name != "id"
    }
    equal = [candidate for candidate in correspondences if candidate.relation is Relation.EQUAL]
    weighted = (
        (candidate.bits, candidate.left, source.in_table(candidate.right)) for candidate in equal
    )
    context.report("mapping", field_mapping(name, one_to_one(weighted), types))


STAGES: Final[Mapping[str, Callable[[SchemaMatchingSpec, StageContext], Frame]]] = {
    "profiles": _profiles,
    "candidates": _candidates,
    "correspondences": _correspondences,
}
