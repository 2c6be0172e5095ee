"""Proposals for columns of any content: fields or whole records, but never a failure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.harness.synthetic_catalogue import catalogues
from benchmarks.harness.synthetic_people import people
from spark_jobs.linkage.open import propose as proposing
from spark_jobs.linkage.open.prepared import normalise
from spark_jobs.linkage.open.profile import RecordSample, pairs_of
from spark_jobs.linkage.open.propose import propose
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.trust import trust
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.specification import SpecInvalid

INPUTS = {name: {"file": f"{name}.csv"} for name in ("a", "b")}


def sample_of(*tables: Sequence[Mapping[str, Any]]) -> RecordSample:
    rows = [row for table in tables for row in table]
    names = sorted({name for row in rows for name in row} - {"id", "entity"})
    raw = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in names}
    columns = {name: normalise(values) for name, values in raw.items()}
    counts = [len(table) for table in tables]
    pairs = pairs_of(counts, within=len(tables) == 1)
    return RecordSample(columns, raw, len(rows), len(rows), pairs)


def test_catalogues_are_compared_as_whole_records() -> None:
    proposal = propose(sample_of(*catalogues(200, 0.5, seed=1)))
    assert proposal.similarity is not None
    assert {*proposal.similarity.columns} == {"name", "description", "price"}
    assert "name" in proposal.reasons[0]
    parsed = OpenSpec.parse({"inputs": INPUTS, **proposal.to_json()["spec"]})
    assert parsed.similarity == proposal.similarity


def test_people_are_compared_by_fields_in_one_table_and_in_two() -> None:
    records = list(people(200, 2, seed=1))
    for tables in ([records], [records[:200], records[200:]]):
        proposal = propose(sample_of(*tables))
        assert proposal.similarity is None
        assert proposal.rules
        assert "similarity" not in proposal.to_json()["spec"]


def test_only_fields_are_proposed_if_whole_records_are_excluded() -> None:
    proposal = propose(sample_of(*catalogues(200, 0.5, seed=1)), only_fields=True)
    assert proposal.similarity is None
    assert proposal.comparisons


@pytest.mark.parametrize("dirty", ["135.34 gbp", "n/a", "1e400", "½", "9" * 400 + ".0"])
def test_a_column_of_numbers_can_contain_other_values(dirty: str) -> None:
    rows = [
        {"id": str(n), "name": f"thing {n % 40}", "price": dirty if n == 7 else f"{n % 90}.25"}
        for n in range(200)
    ]
    proposal = propose(sample_of(rows))
    (price,) = (c for c in proposal.comparisons if c.columns == ("price",))
    assert price.levels[1].limit > 0


def test_a_failed_proposal_of_fields_falls_back_and_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise pa.ArrowInvalid("no such number")

    monkeypatch.setattr(proposing, "propose_rules", fail)
    sample = sample_of(list(people(50, 2, seed=1)))
    proposal = propose(sample)
    assert proposal.similarity is not None
    assert "no such number" in proposal.reasons[0]
    with pytest.raises(pa.ArrowInvalid):
        propose(sample, only_fields=True)


def test_records_that_no_rule_can_block_are_compared_as_a_whole() -> None:
    rows = [{"id": str(n), "kind": "ab"[n % 2], "size": "xyz"[n % 3]} for n in range(3_000)]
    proposal = propose(sample_of(rows))
    assert proposal.similarity is not None
    assert "No rule" in proposal.reasons[0]


def test_records_without_values_are_refused() -> None:
    with pytest.raises(InputUnfit):
        propose(sample_of([{"id": "1", "name": None}]))


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"blocking": [["name"]]}, "/similarity"),
        ({"engine": "splink"}, "/engine"),
        ({"similarity": {"columns": []}}, "/similarity/columns"),
        ({"similarity": {"columns": ["name"], "neighbours": 101}}, "/similarity/neighbours"),
    ],
)
def test_an_invalid_similarity_is_refused_with_its_location(
    changes: dict[str, Any], pointer: str
) -> None:
    document = {"inputs": INPUTS, "similarity": {"columns": ["name"]}, **changes}
    with pytest.raises(SpecInvalid) as error:
        OpenSpec.parse(document)
    assert error.value.pointer == pointer


def test_links_that_agree_are_trusted() -> None:
    report = trust(100, 98, 0.97, 0.0)
    assert report["estimated_precision"] == pytest.approx(0.9506)
    assert report["warnings"] == []


def test_contradictory_links_are_not_trusted() -> None:
    report = trust(21_810, 853, 0.99, 0.0)
    assert report["estimated_precision"] < 0.05
    assert any("cannot be trusted" in warning for warning in report["warnings"])
    assert any("contradict" in warning for warning in report["warnings"])


def test_links_of_differing_records_are_not_trusted() -> None:
    report = trust(100, 100, 0.99, 0.9)
    assert report["estimated_precision"] < 0.1
    assert any("cannot be trusted" in warning for warning in report["warnings"])
    assert any("described alike" in warning for warning in report["warnings"])


def test_missing_links_are_reported() -> None:
    report = trust(0, 0, 0.0, 0.0)
    assert report["estimated_precision"] is None
    assert "no links" in report["warnings"][0]
