"""The background graph, by the examples of the sheet semrep, and by its laws."""

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


def test_related_is_a_last_result_only() -> None:
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
    found = graph(*statements).query(*ends, min_score=0.0)
    assert found is not None
    assert found.relation is relation
    assert found.score == pytest.approx(score, abs=5e-5)
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
        # The left fold is not symmetric, and related may not be gone on from.
        ([("a", E, "b"), ("b", I, "c"), ("c", V, "d")], ("a", "d"), R),
        ([("a", I, "b"), ("b", V, "c"), ("c", E, "d")], ("a", "d"), None),
        ([("a", E, "b"), ("b", E, "c"), ("c", E, "d"), ("d", I, "e")], ("a", "e"), I),
    ],
)
def test_types_of_the_sheet(
    statements: list[tuple[str, Relation, str]], ends: tuple[str, str], relation: Relation | None
) -> None:
    found = graph(*((a, r, b, 1.0) for a, r, b in statements)).query(
        *ends, max_length=4, min_score=0.0
    )
    assert (found and found.relation) == relation


terms = st.sampled_from("abcdef")
statements = st.lists(
    st.builds(Statement, terms, terms, st.sampled_from(STORED), st.sampled_from([0.9, 0.96, 1.0])),
    max_size=12,
)


@given(statements, terms, terms)
def test_what_relates_forth_relates_back(stated: list[Statement], a: str, b: str) -> None:
    background = Background(stated)
    forth, back = background.query(a, b, min_score=0.0), background.query(b, a, min_score=0.0)
    assert (forth is None) == (back is None)
    if forth and back:
        assert forth.score == pytest.approx(back.score)


@given(statements, terms, terms, st.integers(1, 4))
def test_paths_are_those_that_a_search_through_the_graph_finds(
    stated: list[Statement], a: str, b: str, longest: int
) -> None:
    found = Background(stated).query(a, b, max_length=longest, min_score=0.0)
    expected = searched(stated, a, b, longest)
    assert (found is None) == (expected is None)
    if found and expected and a != b:
        assert found.score == pytest.approx(expected)


def searched(stated: list[Statement], a: str, b: str, longest: int) -> float | None:
    """The best score of the shortest valid paths, by a walk over all of them."""
    edges = [(s.source, s.relation, s.target, s.confidence) for s in stated if s.source != s.target]
    edges += [(target, INVERSE[r], source, c) for source, r, target, c in edges]
    known = {source for source, *_ in edges}
    if a == b:
        return 1.0
    if a not in known or b not in known:
        return None
    weight = {E: 0.98, I: 0.96, V: 0.96, H: 0.8, P: 0.8}
    paths: list[tuple[tuple[str, ...], Relation, float]] = [((a,), E, 1.0)]
    for length in range(1, longest + 1):
        longer = []
        for passed, relation, score in paths:
            for source, step, target, confidence in edges:
                if source != passed[-1] or target in passed:
                    continue
                composed = step if len(passed) == 1 else compose(relation, step)
                if composed is not None:
                    cost = 0.15 if composed is R else 0.0
                    longer.append(
                        ((*passed, target), composed, score * confidence * weight[step] - cost)
                    )
        if valid := [score for passed, _, score in longer if passed[-1] == b and score >= 0]:
            return max(valid)
        paths = [path for path in longer if path[0][-1] != b]
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
    found = KITCHEN.query(a, b)
    assert (found and found.relation) == relation


@pytest.mark.parametrize(("least", "found"), [(0.95, True), (0.96, True), (0.97, False)])
@pytest.mark.parametrize("head", ["chair", "desk"])
def test_a_compound_is_one_of_its_head_if_that_is_certain_enough(
    least: float, found: bool, head: str
) -> None:
    terms = f"kitchen {head}", head
    for pair in (terms, terms[::-1]):
        assert (KITCHEN.query(*pair, min_score=least) is not None) == found


def test_terms_are_words_in_any_script_and_case() -> None:
    background = graph(("Straße", E, "улица", 1.0), ("postalCode", E, "zip_code", 1.0))
    assert background.query("STRASSE", "Улица") is not None
    assert background.query("postal code", "ZIP code") is not None
    assert background.query("", "улица") is None


def test_a_term_with_very_many_neighbours_is_no_way_from_one_to_another() -> None:
    background = Background(Statement(f"t{n}", "entity", I) for n in range(1_001))
    assert background.query("t1", "t2") is None
    direct = background.query("t1", "entity")
    assert direct is not None
    assert direct.relation is I


def test_evidence_names_the_terms_along_the_path() -> None:
    assert str(Path(I, 0.9, ("automobile", "car", "vehicle"))) == "automobile > car > vehicle"


@pytest.mark.parametrize(
    "changed",
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
def test_a_row_that_states_nothing_is_refused(changed: dict[str, object]) -> None:
    row = {"id": 1, "source": "a", "target": "b", "relation": "is-a", "confidence": "0.5"}
    assert parse_statement(row) == Statement("a", "b", I, 0.5)
    with pytest.raises(InputUnfit, match="row 1"):
        parse_statement({**row, **changed})
