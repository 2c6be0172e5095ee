"""Whole records: features, neighbours, assignment, and probabilities without labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log, sqrt
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.harness.synthetic_catalogue import catalogues
from spark_jobs.linkage.open.model import bits_of
from spark_jobs.linkage.open.prepared import normalise
from spark_jobs.linkage.open.spec import OpenSpec
from spark_jobs.linkage.open.whole import matching
from spark_jobs.linkage.open.whole.assignment import assign_pairs
from spark_jobs.linkage.open.whole.calibration import calibrate
from spark_jobs.linkage.open.whole.features import Features
from spark_jobs.linkage.open.whole.matching import WholeRecordModel, match_records
from spark_jobs.linkage.open.whole.neighbours import Neighbours, neighbours
from spark_jobs.runner.port import InputUnfit

SPEC = OpenSpec.parse(
    {
        "inputs": {"a": {"file": "a.csv"}, "b": {"file": "b.csv"}},
        "similarity": {"columns": ["name", "description", "price"]},
    }
)


def features_of(*texts: str | None) -> list[set[int]]:
    features = Features.of(pa.array(texts, pa.string()))
    return [
        {*features.numbers[start:end].tolist()}
        for start, end in zip(features.starts, features.starts[1:], strict=False)
    ]


def prepared(*tables: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return records as prepared by the stages, with their rows in order."""
    rows = [(source, record) for source, table in enumerate(tables) for record in table]
    texts = [
        " ".join(record[name] or "" for name in ("name", "description", "price"))
        for _, record in rows
    ]
    return pa.table(
        {
            "row": pa.array(range(len(rows)), pa.int64()),
            "source": pa.array([source for source, _ in rows], pa.int32()),
            "known": pa.array([record.get("known") for _, record in rows], pa.string()),
            "c0": normalise(pa.array(texts)),
        }
    )


def pairs_of(records: pa.Table, spec: OpenSpec = SPEC) -> pa.Table:
    reports: dict[str, Any] = {}
    context: Any = SimpleNamespace(report=reports.__setitem__)
    pairs = match_records(records, spec, context)
    assert reports["similarity"]["decoys"] >= 0
    return pairs


def links(records: pa.Table, spec: OpenSpec = SPEC) -> dict[tuple[int, int], float]:
    """Return the pairs of rows that are links at the default threshold, with their bits."""
    pairs = pairs_of(records, spec)
    ends = zip(pairs["l"].to_pylist(), pairs["r"].to_pylist(), strict=True)
    bits = dict(zip(ends, pairs["rarity"].to_pylist(), strict=True))
    return {pair: weight for pair, weight in bits.items() if weight >= bits_of(spec.threshold)}


def test_a_model_number_shares_a_feature_with_and_without_a_blank() -> None:
    separated, joined, other = features_of("ab cd", "abcd", "ab")
    assert len(separated & joined) == 1  # they share no n-gram
    assert not joined & other


def test_a_record_has_each_feature_once_and_a_missing_text_has_none() -> None:
    twice, often, empty, missing = features_of("red red", "red red red red", "", None)
    assert twice == often
    assert empty == missing == set()


def test_features_are_numbered_from_the_rarest() -> None:
    features = Features.of(pa.array(["a b", "a c", "a"]))
    assert (np.diff(features.counts) >= 0).all()
    for start, end in zip(features.starts, features.starts[1:], strict=False):
        assert (np.diff(features.numbers[start:end]) > 0).all()


def test_neighbours_are_the_most_similar_by_cosine() -> None:
    first, second = catalogues(60, 0.5, seed=3)
    records = prepared(first, second)
    source = records["source"].to_numpy().astype(np.int16)
    texts = features_of(*records["c0"].to_pylist())
    count = {feature: sum(feature in text for text in texts) for text in texts for feature in text}

    def weight(features: set[int]) -> float:
        return sum(log((len(texts) + 1) / count[feature]) ** 2 for feature in features)

    def cosine(i: int, j: int) -> float:
        return weight(texts[i] & texts[j]) / sqrt(weight(texts[i]) * weight(texts[j]))

    nearest = neighbours(Features.of(records["c0"]), source, 3, within=False)
    assert (nearest.i < nearest.j).all()
    pairs = {*zip(nearest.i.tolist(), nearest.j.tolist(), strict=True)}
    assert len(pairs) == len(nearest.i)
    for pair, similarity in zip(
        zip(nearest.i, nearest.j, strict=True), nearest.similarity, strict=True
    ):
        assert similarity == pytest.approx(cosine(*map(int, pair)))
    for i in range(60):
        best = max(range(60, 120), key=lambda j: cosine(i, j))
        assert (i, best) in pairs


def test_a_frequent_word_does_not_hide_a_rare_one() -> None:
    texts = [f"the same words for all of them model {n:04}x" for n in range(300)] * 2
    source = np.repeat(np.array([0, 1], np.int16), 300)
    nearest = neighbours(Features.of(pa.array(texts)), source, 1, within=False)
    assert {*zip(nearest.i.tolist(), nearest.j.tolist(), strict=True)} == {
        (n, 300 + n) for n in range(300)
    }


def test_each_record_has_one_partner_in_each_other_table() -> None:
    pairs = Neighbours(
        np.array([0, 0, 1, 0, 2]), np.array([2, 3, 2, 4, 4]), np.array([0.9, 0.8, 0.85, 0.5, 0.7])
    )
    assigned = assign_pairs(pairs, np.array([0, 0, 1, 1, 2], np.int16))
    chosen = {*zip(assigned.chosen.i.tolist(), assigned.chosen.j.tolist(), strict=True)}
    assert chosen == {(0, 2), (2, 4), (0, 4)}
    assert {*zip(assigned.rejected.i.tolist(), assigned.rejected.j.tolist(), strict=True)} == {
        (0, 3),
        (1, 2),
    }


def test_the_lead_is_over_the_best_competitor_of_either_end() -> None:
    pairs = Neighbours(np.array([0, 0, 1]), np.array([2, 3, 2]), np.array([0.9, 0.6, 0.8]))
    assigned = assign_pairs(pairs, np.array([0, 0, 1, 1], np.int16))
    assert assigned.lead.tolist() == pytest.approx([0.1])


@pytest.mark.parametrize("common", [1.0, 0.5])
def test_probabilities_are_those_of_the_truth(common: float) -> None:
    first, second = catalogues(1_000, common, seed=7)
    entities = [record["entity"] for record in (*first, *second)]
    linked = links(prepared(first, second))
    correct = sum(entities[left] == entities[r] for left, r in linked)
    expected = sum(1 / (1 + 2**-bits) for bits in linked.values())
    assert correct / len(linked) > 0.9
    assert abs(correct - expected) / len(linked) < 0.06
    assert correct > 0.6 * common * 1_000


def test_catalogues_without_a_common_product_have_hardly_a_link() -> None:
    first, second = catalogues(1_000, 0.0, seed=11)
    assert len(links(prepared(first, second))) < 10


def test_the_order_of_records_changes_nothing() -> None:
    records = prepared(*catalogues(200, 0.7, seed=2))
    shuffled = records.take(np.random.default_rng(1).permutation(len(records)))
    assert links(records) == links(shuffled)


def test_records_of_known_clusters_are_not_paired_again() -> None:
    first, second = catalogues(100, 1.0, seed=4)
    known = [{**record, "known": "x"} for record in second]
    assert not links(prepared([{**record, "known": "y"} for record in first], known))
    assert links(prepared(first, known))


@pytest.mark.parametrize("texts", [[], [None, None], ["", "a"], ["a", "a"]])
def test_few_or_empty_records_give_no_link_and_no_error(texts: list[str | None]) -> None:
    records = pa.table(
        {
            "row": pa.array(range(len(texts)), pa.int64()),
            "source": pa.array(range(len(texts)), pa.int32()),
            "known": pa.nulls(len(texts), pa.string()),
            "c0": pa.array(texts, pa.string()),
        }
    )
    assert links(records) == {}


def test_more_records_than_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MAX_RECORDS", 10)
    with pytest.raises(InputUnfit, match="/similarity"):
        pairs_of(prepared(*catalogues(10, 1.0, seed=1)))


def test_no_pair_is_more_certain_than_the_decoys_can_tell() -> None:
    high, low = np.full(50, 0.9), np.full(8, 0.1)
    calibration = calibrate((high, high), (low, low))
    assert 1 / (1 + 2 ** -calibration.bits(high, high)).max() <= 1 - 1 / 10 + 1e-9


def test_an_explanation_names_similarity_and_lead() -> None:
    pairs = pairs_of(prepared(*catalogues(50, 1.0, seed=1)))
    model = WholeRecordModel(("name", "price"))
    explanation = model.explanation(pairs["pattern"][0].as_py())
    assert "name, price" in explanation
    assert model.pattern_bits(pairs["pattern"].to_numpy()).tolist() == [0.0] * len(pairs)
