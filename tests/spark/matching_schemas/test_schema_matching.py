"""The kind `matching.schema`: small schemas with known correspondences, and refused input."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.matching.schemas.kind import SchemaMatching
from spark_jobs.matching.schemas.spec import SchemaMatchingSpec
from spark_jobs.runner.attempt import RunAttempt
from spark_jobs.runner.conformance import (
    SampleJob,
    check_hostile_specs,
    check_interrupted,
    check_spec,
    run_sample,
)
from spark_jobs.runner.control import Control
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.run_directory import RunDirectory
from spark_jobs.runner.specification import SpecInvalid
from spark_jobs.session import LazySession
from spark_jobs.sources.reading import read_input
from tests.spark.stage_context import FolderContext, frame

CITIES = ("Ulm", "Bonn", "Köln", "Jena", "Kiel", "Bern", "Graz", "Linz", "Wien", "Trier", "Mainz")


def table(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return {"table": {"file": str(path)}}


def ndjson(path: Path, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return {"file": str(path)}


def text(path: Path, *fragments: str) -> dict[str, Any]:
    return ndjson(
        path, ({"id": f"{n:03}", "text": fragment} for n, fragment in enumerate(fragments))
    )


def people(scratch: Path) -> dict[str, Any]:
    return table(
        scratch / "people.csv",
        (
            {
                "id": n,
                "first_name": f"Ada{n}",
                "date_of_birth": f"19{40 + n % 50}-0{1 + n % 9}-11",
                "city": CITIES[n % 11],
                "telephone": f"+49 731 {5_000 + n}",
                "remark": "",
            }
            for n in range(60)
        ),
    )


def customers(scratch: Path) -> dict[str, Any]:
    return table(
        scratch / "customers.csv",
        (
            {
                "id": f"c{n}",
                "cst_fname": f"Bob{n}",
                "cst_dob": f"19{40 + n % 50}-0{1 + n % 9}-23",
                "cst_town": CITIES[n % 11],
                "cst_mobile": f"+49 170 {7_000 + n}",
                "cst_revenue": f"{n * 17}.50",
            }
            for n in range(60)
        ),
    )


@pytest.fixture
def sample(tmp_path: Path) -> SampleJob:
    spec = {"left": people(tmp_path), "right": customers(tmp_path)}
    return SampleJob("matching.schema", spec, ordered=True)


def matched(
    spec: Mapping[str, Any], spark: SparkSession, folder: Path
) -> dict[tuple[str, str], dict[str, Any]]:
    directory = RunDirectory(folder)
    rows = map(json.loads, run_sample(SampleJob("matching.schema", spec), spark, directory))
    return {(row["left"], row["right"]): row for row in rows}


def refused(spec: Mapping[str, Any], spark: SparkSession, folder: Path) -> str:
    job = SampleJob("matching.schema", spec).job
    ending = RunAttempt(
        job, RunDirectory(folder), LazySession.of(spark), read_input, Control()
    ).execute()
    assert ending.state == "failed"
    return " ".join(ending.reasons)


def test_its_specification(sample: SampleJob) -> None:
    check_spec(sample)
    check_hostile_specs(sample)
    SchemaMatchingSpec.parse(SchemaMatching.example)


@pytest.mark.large  # each stage is executed four times, with a kind's example each time
@pytest.mark.timeout(900)
def test_it_is_interrupted_and_resumed(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    check_interrupted(sample, spark, tmp_path / "runs")


@pytest.mark.connect
def test_tables_are_matched_by_names_and_values(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    correspondences = matched(sample.spec, spark, tmp_path / "run")
    assert set(correspondences) == {
        ("first_name", "cst_fname"),
        ("date_of_birth", "cst_dob"),
        ("city", "cst_town"),
    }
    for row in correspondences.values():
        assert row["relation"] == "equal"
        assert 0.5 <= row["confidence"] <= 1
    assert "is short for" in correspondences["date_of_birth", "cst_dob"]["evidence"]
    assert "of the values" in correspondences["city", "cst_town"]["evidence"]
    mapping = reports(tmp_path / "run")["mapping"]
    assert mapping["patch"]["classes"]["right"]["fields"]["city"] == {"type": "string"}
    assert "right.cst_town:city" in mapping["copies"]


def reports(folder: Path) -> Mapping[str, Any]:
    return RunDirectory(folder).stages["correspondences"].reports


def test_decisions_are_binding_and_calibrate_confidences(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    decisions = [
        {"left": "telephone", "right": "cst_mobile", "accepted": True},
        {"left": "city", "right": "cst_town", "accepted": False},
    ]
    correspondences = matched({**sample.spec, "decisions": decisions}, spark, tmp_path / "run")
    assert correspondences["telephone", "cst_mobile"]["confidence"] == 1
    assert correspondences["telephone", "cst_mobile"]["evidence"].startswith("People accepted it")
    assert ("city", "cst_town") not in correspondences
    calibration = reports(tmp_path / "run")["calibration"]
    assert calibration["decisions"] == 2
    assert calibration["error_before"] > 0


def test_the_background_relates_fields_with_different_names(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        {"id": 1, "source": "telephone", "target": "phone", "relation": "equal", "confidence": 1.0},
        {"id": 2, "source": "cst mobile", "target": "phone", "relation": "is-a", "confidence": 1.0},
        {"id": 3, "source": "city", "target": "cst town", "relation": "equal", "confidence": 0.9},
    ]
    spec = {**sample.spec, "background": ndjson(tmp_path / "words.json", rows)}
    correspondences = matched(spec, spark, tmp_path / "run")
    assert correspondences["telephone", "cst_mobile"]["relation"] == "inverse is-a"
    assert (
        "telephone > phone > cst mobile" in correspondences["telephone", "cst_mobile"]["evidence"]
    )
    assert "The background says equal" in correspondences["city", "cst_town"]["evidence"]


def test_json_schemas_in_fragments_are_matched_many_to_many(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = '{"properties": {"order": {"properties": {"date": {"type": "string"}}}}}'
    right = '{"properties": {"ord_date": {"type": "string"}, "order_dt": {"type": "string"}}}'
    spec = {
        "left": {"json_schema": text(tmp_path / "left.json", left[:20], left[20:])},
        "right": {"json_schema": text(tmp_path / "right.json", right)},
        "assignment": "many_to_many",
        "min_confidence": 0.0,
    }
    correspondences = matched(spec, spark, tmp_path / "run")
    assert {("order.date", "ord_date"), ("order.date", "order_dt")} <= set(correspondences)


ANATOMY = """
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix : <urn:{side}:> .
{concepts}
"""


def ontology(side: str, labels: Mapping[str, str], parents: Mapping[str, str]) -> str:
    concepts = (
        f':{name} a owl:Class ; rdfs:label "{label}"'
        + (f" ; rdfs:subClassOf :{parents[name]}" if name in parents else "")
        + " ."
        for name, label in labels.items()
    )
    return ANATOMY.format(side=side, concepts="\n".join(concepts))


@pytest.mark.connect
def test_ontologies_are_matched_by_labels_structure_and_background(
    spark: SparkSession, tmp_path: Path
) -> None:
    left = ontology(
        "l",
        {"a": "heart valve", "b": "heart", "c": "spleen capsule", "d": "hand", "e": "body"},
        {"a": "b", "b": "e", "e": "b"},  # a cycle
    )
    right = ontology(
        "r",
        {
            "a": "Valves of the Heart",
            "b": "Heart",
            "c": "Splenic_Capsule",
            "d": "Manus",
            "x": "Limb",
        },
        {"a": "b"},
    )
    rows = [
        {"id": 1, "source": "hand", "target": "manus", "relation": "equal", "confidence": 1.0},
        {"id": 2, "source": "hand", "target": "limb", "relation": "part-of", "confidence": 1.0},
    ]
    spec = {
        "left": {"ontology": text(tmp_path / "left.json", left)},
        "right": {"ontology": text(tmp_path / "right.json", right)},
        "background": ndjson(tmp_path / "words.json", rows),
        "min_confidence": 0.3,
    }
    correspondences = matched(spec, spark, tmp_path / "run")
    relations = {pair: row["relation"] for pair, row in correspondences.items()}
    assert relations == {
        ("urn:l:a", "urn:r:a"): "equal",
        ("urn:l:b", "urn:r:b"): "equal",
        ("urn:l:c", "urn:r:c"): "equal",
        ("urn:l:d", "urn:r:d"): "equal",
        ("urn:l:d", "urn:r:x"): "part-of",
    }


def test_the_labels_of_ontologies_are_forecast(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = ontology("l", {"a": "hand", "b": "finger"}, {}) + ':a :exactSynonym "manus" .'
    texts = {"left": left, "right": ontology("r", {"a": "heart", "b": "lung"}, {})}
    rows = {side: frame(spark, [{"id": "1", "text": text}]) for side, text in texts.items()}
    spec = SchemaMatchingSpec.parse(
        {side: {"ontology": {"file": f"{side}.json"}} for side in texts}
    )
    context = FolderContext(spark, tmp_path, rows)
    assert SchemaMatching().forecast(spec, context).pairs == 3 * 2
    monkeypatch.setattr("spark_jobs.matching.schemas.ontologies.MAX_COMPARED", 2)
    with pytest.raises(InputUnfit, match="left has 3 labels"):
        SchemaMatching().forecast(spec, context)


def test_an_ontology_is_a_background_of_ontologies(spark: SparkSession, tmp_path: Path) -> None:
    ontology_text = ontology("b", {"x": "Manus", "y": "digit of manus"}, {"y": "x"})
    ontology_text += ':x :exactSynonym "hand" . :y :exactSynonym "finger" .'
    spec = {
        "left": {"ontology": text(tmp_path / "left.json", ontology("l", {"d": "hands"}, {}))},
        "right": {
            "ontology": text(
                tmp_path / "right.json", ontology("r", {"d": "manus", "e": "finger"}, {})
            )
        },
        "background": {"ontology": text(tmp_path / "known.json", ontology_text)},
    }
    correspondences = matched(spec, spark, tmp_path / "run")
    assert {pair: row["relation"] for pair, row in correspondences.items()} == {
        ("urn:l:d", "urn:r:d"): "equal",
        ("urn:l:d", "urn:r:e"): "inverse is-a",
    }
    assert (
        "the background knows both as “urn:b:x”"
        in correspondences["urn:l:d", "urn:r:d"]["evidence"]
    )


def test_rows_and_ontologies_form_one_background(
    sample: SampleJob, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"id": 1, "source": "city", "target": "cst town", "relation": "equal", "confidence": 0.9}
    ]
    ontology_text = ontology("b", {"x": "telephone"}, {}) + ':x :exactSynonym "cst mobile" .'
    background = [
        ndjson(tmp_path / "words.json", rows),
        {"ontology": text(tmp_path / "known.json", ontology_text)},
    ]
    spec = {**sample.spec, "background": background}
    correspondences = matched(spec, spark, tmp_path / "run")
    assert (
        "telephone > urn:b:x > cst mobile" in correspondences["telephone", "cst_mobile"]["evidence"]
    )
    assert "city > cst town" in correspondences["city", "cst_town"]["evidence"]
    monkeypatch.setattr("spark_jobs.matching.schemas.stages.MAX_STATEMENTS", 2)
    assert "background 2 states too much" in refused(spec, spark, tmp_path / "bounded")
    broken = [background[0], {"ontology": text(tmp_path / "broken.json", "<rdf:RDF")}]
    reason = refused({**sample.spec, "background": broken}, spark, tmp_path / "broken")
    assert "background 2: this is not xml" in reason


@pytest.mark.parametrize(
    ("background", "pointer"),
    [
        ([], "/background"),
        ([{"class": "words"}] * 9, "/background"),
        ({"ontology": {}}, "/background/ontology/class"),
        ([{"class": "words"}, {"ontology": {"class": 3}}], "/background/1/ontology/class"),
        ([[{"class": "words"}]], "/background/0"),
    ],
)
def test_an_invalid_background_is_refused_with_its_location(background: Any, pointer: str) -> None:
    with pytest.raises(SpecInvalid) as error:
        SchemaMatchingSpec.parse({**SchemaMatching.example, "background": background})
    assert error.value.pointer == pointer


def test_columns_of_mixed_types_and_in_other_scripts_are_matched(
    spark: SparkSession, tmp_path: Path
) -> None:
    mixed: Sequence[Any] = [1, "x", None, "2.5", "", "東京"]
    rows = [{"id": n, "名前": value, "пусто": None, "a.b `c`": n} for n, value in enumerate(mixed)]
    left = {"table": ndjson(tmp_path / "left.json", rows)}
    right = {"table": ndjson(tmp_path / "right.json", rows)}
    correspondences = matched({"left": left, "right": right}, spark, tmp_path / "run")
    assert {("名前", "名前"), ("a.b `c`", "a.b `c`")} <= set(correspondences)


@pytest.mark.parametrize(
    ("member", "document", "reason"),
    [
        ("background", {"source": "a", "target": "b", "relation": "kin", "confidence": 1}, "row 1"),
        ("feedback", {"left": "a", "right": "b", "accepted": "perhaps"}, "row 1"),
    ],
)
def test_invalid_background_and_feedback_rows_are_refused(
    sample: SampleJob,
    spark: SparkSession,
    tmp_path: Path,
    member: str,
    document: Mapping[str, Any],
    reason: str,
) -> None:
    source = ndjson(tmp_path / "rows.json", [{"id": "1", **document}])
    assert reason in refused({**sample.spec, member: source}, spark, tmp_path / "run")


def test_a_side_without_columns_and_a_broken_document_are_refused(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    bare = table(tmp_path / "bare.csv", [{"id": 1}])
    reason = refused({**sample.spec, "right": bare}, spark, tmp_path / "bare")
    assert reason == "right has no column besides its id."
    broken = {"ontology": text(tmp_path / "broken.json", "<rdf:RDF")}
    reason = refused({"left": broken, "right": broken}, spark, tmp_path / "broken")
    assert reason.startswith("left: this is not xml")


def test_a_pair_cannot_be_accepted_and_rejected(
    sample: SampleJob, spark: SparkSession, tmp_path: Path
) -> None:
    pair = {"left": "city", "right": "cst_town"}
    decisions = [{**pair, "accepted": True}, {**pair, "accepted": False}]
    reason = refused({**sample.spec, "decisions": decisions}, spark, tmp_path / "run")
    assert reason == "feedback: city and cst_town are accepted and rejected."
