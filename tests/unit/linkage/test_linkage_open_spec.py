"""Specifications of open linkage: read strictly, written back, refused with the location."""

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

GOOD: dict[str, Any] = {
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
    spec = OpenSpec.parse(GOOD)
    assert [rule.name for rule in spec.blocking] == ["surname & year(born)"]
    assert spec.comparisons[0].level_names == (
        "null", "exact", "jaro_winkler ≥ 0.9", "levenshtein ≤ 2", "else",
    )  # fmt: skip
    assert spec.inputs[0].fields == ("born", "surname")
    assert spec.within
    assert spec.clustering is Clustering.AVERAGE


def test_the_engine_is_chosen_unless_it_is_specified() -> None:
    chosen = OpenSpec.parse(GOOD)
    assert chosen.engine is LinkageEngine.AUTO
    order = [stage.name for stage in OpenLinkage().stages(chosen)]
    assert order.index("engine") < order.index("records")
    for engine in set(LinkageEngine) - {LinkageEngine.AUTO}:
        spec = OpenSpec.parse({**GOOD, "engine": engine.value})
        assert "engine" not in [stage.name for stage in OpenLinkage().stages(spec)]


@pytest.mark.parametrize(
    ("engine", "local"), [("auto", True), ("local", True), ("spark", False), ("splink", False)]
)
def test_inputs_are_read_without_spark_only_for_an_engine_that_may_not_need_it(
    engine: str, *, local: bool
) -> None:
    spec = OpenSpec.parse({**GOOD, "engine": engine, "known": {"file": "known.csv"}})
    assert [bool(input_.local_rows) for input_ in OpenLinkage().inputs(spec)] == [local, local]


def test_two_tables_are_linked_and_not_searched_for_doubles() -> None:
    two = {"a": {"file": "a.csv"}, "b": {"class": "person"}}
    spec = OpenSpec.parse({**GOOD, "inputs": two})
    assert not spec.within
    assert spec.clustering is Clustering.ONE_PER_SOURCE


def test_a_specification_survives_encoding() -> None:
    spec = OpenSpec.parse(GOOD)
    plan = LinkagePlan(blocking=spec.blocking, comparisons=spec.comparisons)
    assert LinkagePlan.parse(plan.model_dump(mode="json")) == plan


def test_the_json_schema_admits_short_forms() -> None:
    models = OpenSpec.model_json_schema()["$defs"]
    assert models["AgreementLevel"]["anyOf"][0] == {"const": "exact"}
    assert models["KeyPart"]["anyOf"][0] == {"type": "string"}


def test_zero_config_reads_all_fields() -> None:
    spec = OpenSpec.parse({"inputs": GOOD["inputs"], "zero_config": True})
    assert spec.zero_config
    assert spec.inputs[0].fields is None


def test_reading_does_not_change_the_document() -> None:
    before = repr(GOOD)
    OpenSpec.parse(GOOD)
    assert repr(GOOD) == before


def changed(*path: str | int, to: Any) -> dict[str, Any]:
    def put(node: Any, at: tuple[str | int, ...]) -> Any:
        if not at:
            return to
        copy: Any = dict(node) if isinstance(node, dict) else list(node)
        copy[at[0]] = put(copy[at[0]] if len(at) > 1 else None, at[1:])
        return copy

    return put(GOOD, path)  # type: ignore[no-any-return]  # the same kind of thing as GOOD


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
        (changed("comparisons", 1, to=GOOD["comparisons"][0]), "/comparisons"),
        (changed("threshold", to=0), "/threshold"),
        (changed("threshold", to=1.5), "/threshold"),
        (changed("within", to=False), "/within"),
        (changed("clustering", to="magic"), "/clustering"),
        (changed("engine", to="duckdb"), "/engine"),
        (changed("engine", to=["splink"]), "/engine"),
        (changed("limits", to={"pairs": 0}), "/limits/pairs"),
        (changed("model", to=7), "/model"),
        (changed("truth", to=""), "/truth"),
        ({"inputs": GOOD["inputs"], "zero_config": True, "model": {}}, "/model"),
    ],
)
def test_mistakes_are_located(document: dict[str, Any], pointer: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        OpenSpec.parse(document)
    assert refused.value.pointer == pointer


def test_too_many_patterns_are_refused() -> None:
    many = [
        {"columns": [f"c{k}"], "levels": [{"levenshtein": n} for n in range(8)]} for k in range(32)
    ]
    with pytest.raises(SpecInvalid, match="too many levels"):
        OpenSpec.parse(changed("comparisons", to=many))


def test_measures_and_takes_are_closed_lists() -> None:
    assert {one.value for one in Measure} == {
        "exact", "levenshtein", "jaro_winkler", "jaccard", "number", "days",
    }  # fmt: skip
    assert {one.value for one in Take} == {
        "whole", "prefix", "suffix", "soundex", "word", "sorted", "year", "month_day",
    }  # fmt: skip
