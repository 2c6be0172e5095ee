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
    found = Features.of(pa.array(texts, pa.string()))
    return [
        {*found.numbers[begin:end].tolist()}
        for begin, end in zip(found.starts, found.starts[1:], strict=False)
    ]


def prepared(*tables: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Records as the stages prepare them, their rows in order."""
    rows = [(at, one) for at, table in enumerate(tables) for one in table]
    texts = [
        " ".join(one[name] or "" for name in ("name", "description", "price")) for _, one in rows
    ]
    return pa.table(
        {
            "row": pa.array(range(len(rows)), pa.int64()),
            "source": pa.array([at for at, _ in rows], pa.int32()),
            "known": pa.array([one.get("known") for _, one in rows], pa.string()),
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
    """Pairs of rows that are links at the default threshold, and their bits."""
    pairs = pairs_of(records, spec)
    ends = zip(pairs["l"].to_pylist(), pairs["r"].to_pylist(), strict=True)
    bits = dict(zip(ends, pairs["rarity"].to_pylist(), strict=True))
    return {pair: weight for pair, weight in bits.items() if weight >= bits_of(spec.threshold)}


def test_a_model_number_written_apart_shares_a_feature_with_itself_written_together() -> None:
    apart, together, other = features_of("ab cd", "abcd", "ab")
    assert len(apart & together) == 1  # no n-gram of the one is in the other
    assert not together & other


def test_a_record_has_each_feature_once_and_a_missing_text_has_none() -> None:
    once, often, empty, missing = features_of("red red", "red red red red", "", None)
    assert once == often
    assert empty == missing == set()


def test_features_are_numbered_from_the_rarest() -> None:
    found = Features.of(pa.array(["a b", "a c", "a"]))
    assert (np.diff(found.counts) >= 0).all()
    for begin, end in zip(found.starts, found.starts[1:], strict=False):
        assert (np.diff(found.numbers[begin:end]) > 0).all()


def test_neighbours_are_the_most_similar_by_cosine() -> None:
    first, second = catalogues(60, 0.5, seed=3)
    records = prepared(first, second)
    source = records["source"].to_numpy().astype(np.int16)
    texts = features_of(*records["c0"].to_pylist())
    count = {feature: sum(feature in one for one in texts) for one in texts for feature in one}

    def weight(some: set[int]) -> float:
        return sum(log((len(texts) + 1) / count[feature]) ** 2 for feature in some)

    def cosine(i: int, j: int) -> float:
        return weight(texts[i] & texts[j]) / sqrt(weight(texts[i]) * weight(texts[j]))

    found = neighbours(Features.of(records["c0"]), source, 3, within=False)
    assert (found.i < found.j).all()
    pairs = {*zip(found.i.tolist(), found.j.tolist(), strict=True)}
    assert len(pairs) == len(found.i)
    for pair, similarity in zip(zip(found.i, found.j, strict=True), found.similarity, strict=True):
        assert similarity == pytest.approx(cosine(*map(int, pair)))
    for i in range(60):
        best = max(range(60, 120), key=lambda j: cosine(i, j))
        assert (i, best) in pairs


def test_a_frequent_word_does_not_hide_a_rare_one() -> None:
    texts = [f"the same words for all of them model {n:04}x" for n in range(300)] * 2
    source = np.repeat(np.array([0, 1], np.int16), 300)
    found = neighbours(Features.of(pa.array(texts)), source, 1, within=False)
    assert {*zip(found.i.tolist(), found.j.tolist(), strict=True)} == {
        (n, 300 + n) for n in range(300)
    }


def test_each_record_has_one_partner_in_each_other_table() -> None:
    pairs = Neighbours(
        np.array([0, 0, 1, 0, 2]), np.array([2, 3, 2, 4, 4]), np.array([0.9, 0.8, 0.85, 0.5, 0.7])
    )
    found = assign_pairs(pairs, np.array([0, 0, 1, 1, 2], np.int16))
    chosen = {*zip(found.chosen.i.tolist(), found.chosen.j.tolist(), strict=True)}
    assert chosen == {(0, 2), (2, 4), (0, 4)}
    assert {*zip(found.rejected.i.tolist(), found.rejected.j.tolist(), strict=True)} == {
        (0, 3),
        (1, 2),
    }


def test_the_lead_is_over_the_best_competitor_of_either_end() -> None:
    pairs = Neighbours(np.array([0, 0, 1]), np.array([2, 3, 2]), np.array([0.9, 0.6, 0.8]))
    found = assign_pairs(pairs, np.array([0, 0, 1, 1], np.int16))
    assert found.lead.tolist() == pytest.approx([0.1])


@pytest.mark.parametrize("common", [1.0, 0.5])
def test_probabilities_are_those_of_the_truth(common: float) -> None:
    first, second = catalogues(1_000, common, seed=7)
    entities = [one["entity"] for one in (*first, *second)]
    found = links(prepared(first, second))
    right = sum(entities[left] == entities[r] for left, r in found)
    expected = sum(1 / (1 + 2**-bits) for bits in found.values())
    assert right / len(found) > 0.9
    assert abs(right - expected) / len(found) < 0.06
    assert right > 0.6 * common * 1_000


def test_catalogues_without_a_common_product_have_hardly_a_link() -> None:
    first, second = catalogues(1_000, 0.0, seed=11)
    assert len(links(prepared(first, second))) < 10


def test_the_order_of_records_changes_nothing() -> None:
    records = prepared(*catalogues(200, 0.7, seed=2))
    shuffled = records.take(np.random.default_rng(1).permutation(len(records)))
    assert links(records) == links(shuffled)


def test_records_of_known_clusters_are_not_paired_again() -> None:
    first, second = catalogues(100, 1.0, seed=4)
    known = [{**one, "known": "x"} for one in second]
    assert not links(prepared([{**one, "known": "y"} for one in first], known))
    assert links(prepared(first, known))


@pytest.mark.parametrize("texts", [[], [None, None], ["", "a"], ["a", "a"]])
def test_few_records_or_empty_ones_make_no_link_and_no_error(texts: list[str | None]) -> None:
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
    learnt = calibrate((high, high), (low, low))
    assert 1 / (1 + 2 ** -learnt.bits(high, high)).max() <= 1 - 1 / 10 + 1e-9


def test_an_explanation_names_similarity_and_lead() -> None:
    pairs = pairs_of(prepared(*catalogues(50, 1.0, seed=1)))
    model = WholeRecordModel(("name", "price"))
    why = model.explanation(pairs["pattern"][0].as_py())
    assert "name, price" in why
    assert model.pattern_bits(pairs["pattern"].to_numpy()).tolist() == [0.0] * len(pairs)
