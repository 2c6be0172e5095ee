"""Scores of inclusion dependencies, and their proposals: references, patches, blocking rules."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.schema.documents import merge_patch
from mediator.schema.ids import id_error
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.profiling.canonical import CellType
from spark_jobs.profiling.columns import ProfiledColumn
from spark_jobs.profiling.propose import blocking_rules, references
from spark_jobs.profiling.ranking import Ranking, name_similarity
from spark_jobs.profiling.spec import IndSpec

SPEC = IndSpec.parse({"inputs": {"orders": {"class": "orders"}, "customers": {"class": "people"}}})
FIELDS = {"orders": ["id", "customer", "email"], "customers": ["id", "email"]}


def column(number: int, name: str) -> ProfiledColumn:
    table, _, path = name.partition(".")
    return ProfiledColumn(number, table, path, CellType.TEXT)


def scored_row(
    dependent: str, referenced: str, dependent_count: int, referenced_count: int, **counts: int
) -> dict[str, Any]:
    values = {0: dependent_count, 1: counts.get("values", referenced_count)}
    ranking = Ranking((column(0, dependent), column(1, referenced)), values)
    return ranking.row(
        {
            "dependent": [0],
            "referenced": [1],
            "distinct_dependent": dependent_count,
            "distinct_referenced": referenced_count,
            "missing": counts.get("missing", 0),
        }
    )


def test_a_row_has_an_id_that_a_class_accepts_and_no_other_one_has() -> None:
    names = ("orders.price", "orders.price/unit", f"orders.{'x' * 600}", "orders.\n")
    ids = {
        scored_row(dependent, referenced, 3, 5)["id"] for dependent in names for referenced in names
    }
    assert len(ids) == len(names) ** 2
    assert [id_ for id_ in ids if id_error(id_) is not None] == []


@pytest.mark.parametrize(
    ("dependent", "referenced", "expected"),
    [
        ("orders.customer_id", "customers.id", 1.0),
        ("orders.customerId", "customers.id", 1.0),
        ("lineitem.l_orderkey", "orders.o_orderkey", 1.0),
        ("orders.id", "customers.id", 0.0),
        ("orders.stars", "customers.id", 0.0),
        ("a.日本", "b.日本", 1.0),
    ],
)
def test_names_are_compared_by_words(dependent: str, referenced: str, expected: float) -> None:
    assert name_similarity(column(0, dependent), column(1, referenced)) == expected


def test_key_name_values_and_coverage_raise_the_score() -> None:
    best = scored_row("orders.customer", "customers.id", 80, 100)["score"]
    assert best > scored_row("orders.stars", "customers.id", 80, 100)["score"]
    assert best > scored_row("orders.customer", "customers.id", 2, 100)["score"]
    assert best > scored_row("orders.customer", "customers.id", 80, 1_000)["score"]
    assert best > scored_row("orders.customer", "customers.id", 80, 100, values=200)["score"]
    assert best > scored_row("orders.customer", "customers.id", 80, 100, missing=8)["score"]


def test_the_figures_of_a_dependency() -> None:
    row = scored_row("orders.customer", "customers.id", 80, 100, missing=8)
    assert (row["error"], row["coverage"], row["key"]) == (0.1, 0.72, 1.0)
    assert row["why"] == (
        "72 of 80 distinct values occur there; they are 72% of its distinct values. "
        "It is 100% unique. The names have 100% in common."
    )


def test_a_reference_by_id_is_a_patch_and_a_copy() -> None:
    (proposal,) = references(SPEC, [scored_row("orders.customer", "customers.id", 80, 100)], FIELDS)
    reference = {"type": "reference", "to": "people", "index": True}
    assert proposal["patch"] == {"classes": {"orders": {"fields": {"customer_ref": reference}}}}
    assert proposal["copy"] == "orders.customer:customer_ref"
    schema = {"classes": {"orders": {"fields": {"customer": {"type": "string"}}}}}
    merged: Any = merge_patch(schema, proposal["patch"])
    assert merged["classes"]["orders"]["fields"].keys() == {"customer", "customer_ref"}


def test_a_reference_by_another_key_looks_ids_up() -> None:
    (proposal,) = references(SPEC, [scored_row("orders.email", "customers.email", 80, 100)], FIELDS)
    assert proposal["patch"]["classes"]["people"] == {"fields": {"email": {"index": True}}}
    assert proposal["copy"] == "orders.email=people.email.id:email_ref"


def test_a_non_key_a_filtered_input_and_an_existing_field_have_no_patch() -> None:
    row = scored_row("orders.customer", "customers.id", 80, 100, values=101)
    (proposal,) = references(SPEC, [row], FIELDS)
    assert "patch" not in proposal
    row = scored_row("orders.customer", "customers.id", 80, 100)
    (proposal,) = references(SPEC, [row], {**FIELDS, "orders": ["customer", "customer_ref"]})
    assert "patch" not in proposal
    filtered_input = {"class": "people", "filter": {"eq": ["city", "Ulm"]}}
    spec = IndSpec.parse({"inputs": {"orders": {"class": "orders"}, "customers": filtered_input}})
    (proposal,) = references(spec, [row], FIELDS)
    assert "patch" not in proposal


def test_a_column_has_one_proposal_and_unlikely_ones_have_none() -> None:
    likely = scored_row("orders.customer", "customers.id", 80, 100)
    second = scored_row("orders.customer", "customers.number", 80, 100)
    unlikely = scored_row("orders.stars", "customers.id", 3, 1_000)
    proposals = references(SPEC, [likely, second, unlikely], FIELDS)
    assert [proposal["referenced"] for proposal in proposals] == ["customers.id"]


def test_blocking_rules_are_a_linkage_specification() -> None:
    rows = [
        scored_row("orders.email", "customers.email", 80, 100),
        scored_row("orders.customer", "customers.id", 80, 100),
        scored_row("orders.id", "customers.id", 80, 100),
    ]
    (job,) = blocking_rules(SPEC, rows, FIELDS)
    spec = OpenSpec.parse(job["spec"])
    assert [rule.name for rule in spec.blocking] == ["email"]
    assert {input_.name for input_ in spec.inputs} == {"orders", "customers"}


def test_a_column_of_few_values_is_no_blocking_rule() -> None:
    row = scored_row("orders.email", "customers.email", 3, 3, values=1_000)
    assert blocking_rules(SPEC, [row], FIELDS) == []
