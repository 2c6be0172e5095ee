"""The background graph: the examples of the sheet semrep, and its laws."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.matching.schemas.background import Background, Path, Statement, parse_statement
from spark_jobs.matching.schemas.relations import INVERSE, Relation, compose
from spark_jobs.runner.port import InputUnfit

E, I, V, H, P, R = Relation  # noqa: E741 - as in the sheet
STORED = (E, I, V, H, P)
WORDNET, WIKIPEDIA = 0.96, 0.90

TABLE = {
    E: [E, I, V, H, P],
    I: [I, I, R, H, P],
    V: [V, None, V, H, P],
    H: [H, H, H, H, None],
    P: [P, P, P, R, P],
}


@pytest.mark.parametrize("first", STORED)
def test_composition_is_the_table_of_the_paper(first: Relation) -> None:
    assert [compose(first, second) for second in STORED] == TABLE[first]


def test_related_cannot_be_composed_further() -> None:
    assert all(compose(R, second) is None for second in STORED)


@pytest.mark.parametrize("first", STORED)
@pytest.mark.parametrize("second", STORED)
def test_the_inverse_of_two_relations_are_their_inverses_in_the_other_order(
    first: Relation, second: Relation
) -> None:
    forth, back = compose(first, second), compose(INVERSE[second], INVERSE[first])
    assert back == (None if forth is None else INVERSE[forth])


def graph(*statements: tuple[str, Relation, str, float]) -> Background:
    return Background(Statement(a, b, relation, c) for a, relation, b, c in statements)


@pytest.mark.parametrize(
    ("statements", "ends", "relation", "score"),
    [
        (
            [("automobile", E, "car", WORDNET), ("car", I, "vehicle", WIKIPEDIA)],
            ("automobile", "vehicle"),
            I,
            0.8129,
        ),
        (
            [("apple", I, "fruit", WORDNET), ("banana", I, "fruit", WORDNET)],
            ("apple", "banana"),
            R,
            0.6993,
        ),
        (
            [("a", P, "b", WIKIPEDIA), ("b", P, "c", WIKIPEDIA)],
            ("a", "c"),
            P,
            0.5184,
        ),
    ],
)
def test_scores_of_the_sheet(
    statements: list[tuple[str, Relation, str, float]],
    ends: tuple[str, str],
    relation: Relation,
    score: float,
) -> None:
    path = graph(*statements).query(*ends, min_score=0.0)
    assert path is not None
    assert path.relation is relation
    assert path.score == pytest.approx(score, abs=5e-5)
    recommended = graph(*statements).query(*ends)
    assert (recommended is None) == (score < 0.6)


@pytest.mark.parametrize(
    ("statements", "ends", "relation"),
    [
        ([("engine", P, "car"), ("car", I, "motor vehicle")], ("engine", "motor vehicle"), P),
        ([("computer", H, "ram"), ("ram", I, "memory")], ("computer", "memory"), H),
        (
            [("combustion engine", I, "engine"), ("engine", P, "car"), ("convertible", I, "car")],
            ("combustion engine", "convertible"),
            P,
        ),
        ([("cpu", P, "computer"), ("computer", H, "memory")], ("cpu", "memory"), R),
        ([("apple", I, "fruit"), ("apple", I, "plant tissue")], ("fruit", "plant tissue"), None),
        ([("laptop", H, "cpu"), ("notebook", H, "cpu")], ("laptop", "notebook"), None),
        # The left fold is not symmetric, and related cannot be composed further.
        ([("a", E, "b"), ("b", I, "c"), ("c", V, "d")], ("a", "d"), R),
        ([("a", I, "b"), ("b", V, "c"), ("c", E, "d")], ("a", "d"), None),
        ([("a", E, "b"), ("b", E, "c"), ("c", E, "d"), ("d", I, "e")], ("a", "e"), I),
    ],
)
def test_types_of_the_sheet(
    statements: list[tuple[str, Relation, str]], ends: tuple[str, str], relation: Relation | None
) -> None:
    path = graph(*((a, r, b, 1.0) for a, r, b in statements)).query(
        *ends, max_length=4, min_score=0.0
    )
    assert (path and path.relation) == relation


terms = st.sampled_from("abcdef")
statements = st.lists(
    st.builds(Statement, terms, terms, st.sampled_from(STORED), st.sampled_from([0.9, 0.96, 1.0])),
    max_size=12,
)


@given(statements, terms, terms)
def test_a_relation_exists_in_both_directions(statements_: list[Statement], a: str, b: str) -> None:
    background = Background(statements_)
    forth, back = background.query(a, b, min_score=0.0), background.query(b, a, min_score=0.0)
    assert (forth is None) == (back is None)
    if forth and back:
        assert forth.score == pytest.approx(back.score)


@given(statements, terms, terms, st.integers(1, 4))
def test_paths_equal_those_of_an_exhaustive_search(
    statements_: list[Statement], a: str, b: str, max_length: int
) -> None:
    path = Background(statements_).query(a, b, max_length=max_length, min_score=0.0)
    expected = best_score(statements_, a, b, max_length)
    assert (path is None) == (expected is None)
    if path and expected and a != b:
        assert path.score == pytest.approx(expected)


def best_score(statements_: list[Statement], a: str, b: str, max_length: int) -> float | None:
    """Return the best score of the shortest valid paths, found by enumeration."""
    edges = [
        (s.source, s.relation, s.target, s.confidence) for s in statements_ if s.source != s.target
    ]
    edges += [(target, INVERSE[r], source, c) for source, r, target, c in edges]
    terms_ = {source for source, *_ in edges}
    if a == b:
        return 1.0
    if a not in terms_ or b not in terms_:
        return None
    weight = {E: 0.98, I: 0.96, V: 0.96, H: 0.8, P: 0.8}
    paths: list[tuple[tuple[str, ...], Relation, float]] = [((a,), E, 1.0)]
    for length in range(1, max_length + 1):
        longer_paths = []
        for visited, relation, score in paths:
            for source, step, target, confidence in edges:
                if source != visited[-1] or target in visited:
                    continue
                composed = step if len(visited) == 1 else compose(relation, step)
                if composed is not None:
                    cost = 0.15 if composed is R else 0.0
                    longer_paths.append(
                        ((*visited, target), composed, score * confidence * weight[step] - cost)
                    )
        if valid := [
            score for visited, _, score in longer_paths if visited[-1] == b and score >= 0
        ]:
            return max(valid)
        paths = [path for path in longer_paths if path[0][-1] != b]
        assert length <= 4
    return None


KITCHEN = graph(
    ("chair", I, "furniture", 1.0),
    ("chair", E, "seat", 1.0),
    ("vice president", I, "politician", 1.0),
    ("apple", I, "fruit", 1.0),
    ("engine", P, "car", 1.0),
    ("region", E, "location", 1.0),
    ("wine region", P, "france", 1.0),
)


@pytest.mark.parametrize(
    ("a", "b", "relation"),
    [
        ("kitchen chair", "chair", I),
        ("chair", "kitchen chair", V),
        ("kitchen chair", "furniture", I),
        ("furniture", "kitchen chair", V),
        ("kitchen chair", "seat", I),
        ("US vice president", "US politician", I),
        ("apple cake", "fruit cake", I),
        ("engine cake", "car cake", None),
        ("pear cake", "fruit cake", None),
        ("wine region", "location", I),
        ("desk", "furniture", None),
    ],
)
def test_compounds(a: str, b: str, relation: Relation | None) -> None:
    path = KITCHEN.query(a, b)
    assert (path and path.relation) == relation


@pytest.mark.parametrize(("min_score", "is_related"), [(0.95, True), (0.96, True), (0.97, False)])
@pytest.mark.parametrize("head", ["chair", "desk"])
def test_a_compound_is_a_kind_of_its_head_down_to_the_minimum_score(
    min_score: float, is_related: bool, head: str
) -> None:
    terms = f"kitchen {head}", head
    for pair in (terms, terms[::-1]):
        assert (KITCHEN.query(*pair, min_score=min_score) is not None) == is_related


def test_terms_are_words_in_any_script_and_case() -> None:
    background = graph(("Straße", E, "улица", 1.0), ("postalCode", E, "zip_code", 1.0))
    assert background.query("STRASSE", "Улица") is not None
    assert background.query("postal code", "ZIP code") is not None
    assert background.query("", "улица") is None


def test_a_term_with_very_many_neighbours_is_not_on_paths() -> None:
    background = Background(Statement(f"t{n}", "entity", I) for n in range(1_001))
    assert background.query("t1", "t2") is None
    direct = background.query("t1", "entity")
    assert direct is not None
    assert direct.relation is I


def test_evidence_names_the_terms_along_the_path() -> None:
    assert str(Path(I, 0.9, ("automobile", "car", "vehicle"))) == "automobile > car > vehicle"


@pytest.mark.parametrize(
    "changes",
    [
        {"relation": "kin"},
        {"relation": "related"},
        {"confidence": 2},
        {"confidence": 0},
        {"confidence": "sure"},
        {"confidence": None},
        {"source": ""},
        {"target": None},
    ],
)
def test_an_invalid_row_is_refused(changes: dict[str, object]) -> None:
    row = {"id": 1, "source": "a", "target": "b", "relation": "is-a", "confidence": "0.5"}
    assert parse_statement(row) == Statement("a", "b", I, 0.5)
    with pytest.raises(InputUnfit, match="row 1"):
        parse_statement({**row, **changes})
