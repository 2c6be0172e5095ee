"""Specifications of open linkage: parsed strictly, encoded, and refused with the location."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.linkage.open.kind import OpenLinkage
from spark_jobs.linkage.open.rules import Take
from spark_jobs.linkage.open.spec import (
    Clustering,
    LinkageEngine,
    LinkagePlan,
    Measure,
    OpenSpec,
)
from spark_jobs.runner.specification import SpecInvalid

VALID: dict[str, Any] = {
    "inputs": {"people": {"file": "people.csv"}},
    "blocking": [["surname", {"column": "born", "take": "year"}]],
    "comparisons": [
        {
            "columns": ["surname"],
            "levels": ["exact", {"jaro_winkler": 0.9}, {"levenshtein": 2}],
            "term_frequency": True,
        },
        {"columns": ["born"], "levels": ["exact", {"days": 30}]},
    ],
}


def test_a_specification_is_parsed() -> None:
    spec = OpenSpec.parse(VALID)
    assert [rule.name for rule in spec.blocking] == ["surname & year(born)"]
    assert spec.comparisons[0].level_names == (
        "null", "exact", "jaro_winkler ≥ 0.9", "levenshtein ≤ 2", "else",
    )  # fmt: skip
    assert spec.inputs[0].fields == ("born", "surname")
    assert spec.within
    assert spec.clustering is Clustering.AVERAGE


def test_the_engine_is_chosen_unless_it_is_specified() -> None:
    chosen = OpenSpec.parse(VALID)
    assert chosen.engine is LinkageEngine.AUTO
    order = [stage.name for stage in OpenLinkage().stages(chosen)]
    assert order.index("engine") < order.index("records")
    for engine in set(LinkageEngine) - {LinkageEngine.AUTO}:
        spec = OpenSpec.parse({**VALID, "engine": engine.value})
        assert "engine" not in [stage.name for stage in OpenLinkage().stages(spec)]


@pytest.mark.parametrize(
    ("engine", "local"), [("auto", True), ("local", True), ("spark", False), ("splink", False)]
)
def test_inputs_are_read_without_spark_only_for_engines_that_can_do_without(
    engine: str, *, local: bool
) -> None:
    spec = OpenSpec.parse({**VALID, "engine": engine, "known": {"file": "known.csv"}})
    assert [bool(input_.local_rows) for input_ in OpenLinkage().inputs(spec)] == [local, local]


def test_two_tables_are_linked_and_not_deduplicated() -> None:
    tables = {"a": {"file": "a.csv"}, "b": {"class": "person"}}
    spec = OpenSpec.parse({**VALID, "inputs": tables})
    assert not spec.within
    assert spec.clustering is Clustering.ONE_PER_SOURCE


def test_a_specification_survives_encoding() -> None:
    spec = OpenSpec.parse(VALID)
    plan = LinkagePlan(blocking=spec.blocking, comparisons=spec.comparisons)
    assert LinkagePlan.parse(plan.model_dump(mode="json")) == plan


def test_the_json_schema_admits_short_forms() -> None:
    models = OpenSpec.model_json_schema()["$defs"]
    assert models["AgreementLevel"]["anyOf"][0] == {"const": "exact"}
    assert models["KeyPart"]["anyOf"][0] == {"type": "string"}


def test_zero_config_reads_all_fields() -> None:
    spec = OpenSpec.parse({"inputs": VALID["inputs"], "zero_config": True})
    assert spec.zero_config
    assert spec.inputs[0].fields is None


def test_reading_does_not_change_the_document() -> None:
    before = repr(VALID)
    OpenSpec.parse(VALID)
    assert repr(VALID) == before


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    def put(node: Any, keys: tuple[str | int, ...]) -> Any:
        if not keys:
            return to
        copy: Any = dict(node) if isinstance(node, dict) else list(node)
        copy[keys[0]] = put(copy[keys[0]] if len(keys) > 1 else None, keys[1:])
        return copy

    return put(VALID, path)  # type: ignore[no-any-return]  # a document like VALID


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (changed("surplus", to=1), "/surplus"),
        (changed("inputs", to={}), "/inputs"),
        (changed("inputs", to={"drop table": {"file": "a.csv"}}), "/inputs/drop table"),
        (changed("inputs", "people", to={"file": "a.exe"}), "/inputs/people/format"),
        (changed("blocking", to=[]), "/blocking"),
        (changed("blocking", 0, to=[]), "/blocking/0"),
        (changed("blocking", 0, 0, to={"column": "a", "sql": "1=1"}), "/blocking/0/0/sql"),
        (changed("blocking", 0, 0, to={"column": "a", "take": "eval"}), "/blocking/0/0/take"),
        (changed("blocking", 0, 0, to={"column": "a", "take": "prefix"}), "/blocking/0/0/length"),
        (changed("blocking", 0, 0, to={"column": "a", "length": 3}), "/blocking/0/0/length"),
        (changed("blocking", to=[["a"]] * 33), "/blocking"),
        (changed("comparisons", to=[]), "/comparisons"),
        (changed("comparisons", 0, "levels", to=[]), "/comparisons/0/levels"),
        (changed("comparisons", 0, "levels", to=["near"]), "/comparisons/0/levels/0"),
        (changed("comparisons", 0, "levels", to=[{"regex": ".*"}]), "/comparisons/0/levels/0"),
        (
            changed("comparisons", 0, "levels", to=["exact", {"jaccard": 2}]),
            "/comparisons/0/levels/1/jaccard",
        ),
        (
            changed("comparisons", 0, "levels", to=["exact", {"days": float("nan")}]),
            "/comparisons/0/levels/1/days",
        ),
        (changed("comparisons", 0, "levels", to=[{"levenshtein": 1}]), "/comparisons/0/levels"),
        (changed("comparisons", 1, to=VALID["comparisons"][0]), "/comparisons"),
        (changed("threshold", to=0), "/threshold"),
        (changed("threshold", to=1.5), "/threshold"),
        (changed("within", to=False), "/within"),
        (changed("clustering", to="magic"), "/clustering"),
        (changed("engine", to="duckdb"), "/engine"),
        (changed("engine", to=["splink"]), "/engine"),
        (changed("limits", to={"pairs": 0}), "/limits/pairs"),
        (changed("model", to=7), "/model"),
        (changed("truth", to=""), "/truth"),
        ({"inputs": VALID["inputs"], "zero_config": True, "model": {}}, "/model"),
    ],
)
def test_mistakes_are_located(document: dict[str, Any], pointer: str) -> None:
    with pytest.raises(SpecInvalid) as error:
        OpenSpec.parse(document)
    assert error.value.pointer == pointer


def test_too_many_patterns_are_refused() -> None:
    comparisons = [
        {"columns": [f"c{k}"], "levels": [{"levenshtein": n} for n in range(8)]} for k in range(32)
    ]
    with pytest.raises(SpecInvalid, match="too many levels"):
        OpenSpec.parse(changed("comparisons", to=comparisons))


def test_measures_and_takes_are_enumerations() -> None:
    assert {measure.value for measure in Measure} == {
        "exact", "levenshtein", "jaro_winkler", "jaccard", "number", "days",
    }  # fmt: skip
    assert {take.value for take in Take} == {
        "whole", "prefix", "suffix", "soundex", "word", "sorted", "year", "month_day",
    }  # fmt: skip
