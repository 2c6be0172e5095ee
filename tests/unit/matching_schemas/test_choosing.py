"""Uses of evidence: the choice of pairs, confidences, feedback, and a schema change."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.matching.schemas.assignment import one_to_one
from spark_jobs.matching.schemas.confidence import Calibration, calibration_error
from spark_jobs.matching.schemas.feedback import parse_decisions
from spark_jobs.matching.schemas.mapping import field_mapping
from spark_jobs.matching.schemas.relations import Relation
from spark_jobs.matching.schemas.spec import Decision, SchemaMatchingSpec
from spark_jobs.runner.port import InputUnfit
from spark_jobs.runner.specification import SpecInvalid

weighted_pairs = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 5), st.integers(0, 5)), max_size=20
)


@given(weighted_pairs, st.randoms())
def test_each_element_is_chosen_once_in_any_order(
    pairs: list[tuple[int, int, int]], order: random.Random
) -> None:
    chosen = list(one_to_one((float(w), left, right) for w, left, right in pairs))
    assert len({left for left, _ in chosen}) == len(chosen) == len({right for _, right in chosen})
    shuffled = pairs.copy()
    order.shuffle(shuffled)
    reordered = ((float(w), left, right) for w, left, right in shuffled)
    assert list(one_to_one(reordered)) == chosen
    for weight, left, right in pairs:  # a rejected pair lost against one with at least its weight
        weights = [w for w, a, b in pairs if (a, b) in chosen and (a == left or b == right)]
        assert max(weights) >= weight


def test_without_decisions_bits_are_taken_as_odds() -> None:
    assert Calibration.fit(()) == Calibration()
    assert Calibration().confidence(0) == 0.5
    assert Calibration().confidence(1) == pytest.approx(2 / 3)
    assert Calibration().confidence(-1e9) < Calibration().confidence(1e9) == 1


def test_decisions_fit_the_curve_to_peoples_answers() -> None:
    source = random.Random(1)
    points = []
    for _ in range(400):  # evidence with twice the bits that it deserves
        bits = source.uniform(-8, 8)
        points.append((bits, source.random() < Calibration(0.5, -1).confidence(bits)))
    learned = Calibration.fit(points)
    assert learned.slope == pytest.approx(0.5, abs=0.15)
    assert learned.offset == pytest.approx(-1, abs=0.4)
    before, after = (
        calibration_error([c.confidence(b) for b, _ in points], [right for _, right in points])
        for c in (Calibration(), learned)
    )
    assert after < before / 2


@given(st.lists(st.tuples(st.floats(-60, 60), st.booleans()), max_size=30))
def test_confidence_grows_with_evidence(points: list[tuple[float, bool]]) -> None:
    curve = Calibration.fit(points)
    confidences = [curve.confidence(bits) for bits in range(-60, 61)]
    assert confidences == sorted(confidences)
    assert all(0 <= confidence <= 1 for confidence in confidences)


def test_the_calibration_error_is_the_mean_gap_of_the_bins() -> None:
    assert calibration_error([], []) == 0
    assert calibration_error([0.9, 0.9, 0.1], [True, False, False]) == pytest.approx(
        (2 * 0.4 + 0.1) / 3
    )
    assert calibration_error([1.0], [True]) == 0


def decision(left: str, right: str, *, accepted: bool) -> Decision:
    return Decision(left=left, right=right, accepted=accepted)


def test_differing_words_of_accepted_names_are_equal() -> None:
    decisions = parse_decisions(
        [
            decision("customer_tel", "client.customer_phone", accepted=True),
            decision("a_b", "c_d", accepted=True),
            decision("street", "road", accepted=False),
        ],
        [{"id": "1", "left": "town", "right": "city", "accepted": "TRUE"}],
    )
    statements = [(s.source, s.relation, s.target) for s in decisions.statements()]
    assert statements == [("tel", Relation.EQUAL, "phone"), ("town", Relation.EQUAL, "city")]


@pytest.mark.parametrize("value", [None, "yes", 2, "", []])
def test_a_decision_is_true_or_false(value: object) -> None:
    with pytest.raises(InputUnfit, match="the row 7"):
        parse_decisions((), [{"id": "7", "left": "a", "right": "b", "accepted": value}])


def test_the_mapping_adds_fields_and_reports_skipped_ones() -> None:
    pairs = [("email", "mail"), ("name", "name"), ("town", "city"), ("9x", "age"), ("id", "key")]
    types = {"mail": "string", "name": "string", "city": "string", "town": "string"}
    assert field_mapping("customers", pairs, {**types, "age": "integer", "key": "string"}) == {
        "patch": {"classes": {"customers": {"fields": {"email": {"type": "string"}}}}},
        "copies": ["customers.mail:email"],
        "renames": ["customers.mail:email"],
        "rename": {"mail": "email", "age": "9x"},
        "skipped": [
            "city: there is another field town already",
            "age: 9x cannot be the name of a field",
            "key: id cannot be the name of a field",
        ],
    }


TABLE = {"table": {"class": "people"}}


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"left": {}}, "/left"),
        ({"right": {**TABLE, "ontology": {"class": "texts"}}}, "/right"),
        ({"right": {"ontology": {"class": "texts"}}}, "/right"),
        ({"max_path_length": 5}, "/max_path_length"),
        ({"min_confidence": 1.5}, "/min_confidence"),
        ({"assignment": "all"}, "/assignment"),
        ({"decisions": [{"left": "a", "right": "b"}]}, "/decisions/0/accepted"),
    ],
)
def test_an_invalid_specification_is_refused_with_its_location(
    changes: dict[str, object], pointer: str
) -> None:
    with pytest.raises(SpecInvalid) as error:
        SchemaMatchingSpec.parse({"left": TABLE, "right": TABLE, **changes})
    assert error.value.pointer == pointer
