"""Concepts of a background: common and different senses, and lessons from names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from spark_jobs.matching.schemas.background import Background, Statement
from spark_jobs.matching.schemas.concepts import concept_candidates
from spark_jobs.matching.schemas.elements import Candidate
from spark_jobs.matching.schemas.labels import Labels
from spark_jobs.matching.schemas.names import Vocabulary, names_of
from spark_jobs.matching.schemas.ontologies import Concept, Ontology
from spark_jobs.matching.schemas.relations import Relation
from spark_jobs.matching.schemas.senses import Senses, SharedSenses
from spark_jobs.matching.schemas.steps import Steps
from spark_jobs.matching.schemas.translations import Label
from spark_jobs.runner.port import RunCancelled
from tests.unit.matching_schemas.test_concepts import ORGANS, ProgressRecorder, concept, ontology


def ignore(_done: int, _total: int) -> None:
    """Ignore progress."""


def background(*concepts: Concept) -> Background:
    result = Background()
    for concept_ in concepts:
        result.add_concept(concept_)
    return result


def candidates(
    left: Ontology, right: Ontology, known: Background, relation: Relation = Relation.EQUAL
) -> Mapping[tuple[str, str], Candidate]:
    all_candidates = concept_candidates(left, right, known)
    return {(c.left, c.right): c for c in all_candidates if c.relation is relation}


def test_a_common_sense_makes_a_pair_of_labels_without_a_common_word() -> None:
    left = ontology(concept("l:1", "oviducts"))
    right = ontology(concept("r:1", "tube of Fallopius"), concept("r:2", "ovary"))
    known = background(concept("urn:b:1", "uterine tube", "oviduct", "Fallopius tube"))
    assert candidates(left, right, Background()) == {}
    pairs = candidates(left, right, known)
    assert list(pairs) == [("l:1", "r:1")]
    assert pairs["l:1", "r:1"].bits > 0
    assert "the background knows both as “urn:b:1”" in pairs["l:1", "r:1"].evidence


def test_a_synonym_of_two_concepts_does_not_make_them_equal() -> None:
    known = background(concept("urn:b:1", "finger", "digit"), concept("urn:b:2", "toe", "digit"))
    sides = ontology(concept("l:1", "finger")), ontology(concept("r:1", "toe"))
    assert candidates(*sides, known) == {}
    sides = ontology(concept("l:1", "finger")), ontology(concept("r:1", "digit"))
    assert candidates(*sides, known)["l:1", "r:1"].bits > 0


def test_different_senses_count_against_a_pair() -> None:
    left = ontology(concept("l:1", "pelvic muscle"), concept("l:2", "spleen"))
    right = ontology(concept("r:1", "pelvis muscle"), concept("r:2", "spleen"))
    separate = background(concept("urn:b:1", "pelvic muscle"), concept("urn:b:2", "pelvis muscle"))
    half = background(concept("urn:b:1", "pelvic muscle"))
    before, after, unknown = (
        candidates(left, right, known)["l:1", "r:1"] for known in (Background(), separate, half)
    )
    assert after.bits < before.bits
    assert unknown.bits == before.bits
    assert "the background knows both, and tells them apart" in after.evidence


def test_names_of_a_background_must_be_equal() -> None:
    known = background(concept("urn:b:1", "xyz", "left heart ventricle"))
    left, right = ontology(concept("l:1", "xyz")), ontology(concept("r:1", "heart ventricle"))
    assert candidates(left, right, known) == {}


def test_differing_words_of_a_concepts_names_are_learned() -> None:
    left = ontology(*(concept(f"l{n}", f"{organ} hilus") for n, organ in enumerate(ORGANS)))
    right = ontology(*(concept(f"r{n}", f"{organ} gate") for n, organ in enumerate(ORGANS)))
    known = background(
        *(concept(f"b{n}", f"{o} hilus", f"{o} gate") for n, o in enumerate(ORGANS[:4]))
    )
    before, after = (candidates(left, right, graph) for graph in (Background(), known))
    assert ("l7", "r7") not in before
    assert after["l7", "r7"].bits > 0


def test_only_words_of_the_other_side_are_learned() -> None:
    words = Labels([])
    known = background(concept("b", "kidney cortex", "renal cortex", "kidney bark", "renal edge"))
    senses = Senses(known, words)
    left, right = [words.label("kidney cortex")], [words.label("renal pelvis"), ("edge",)]
    assert list(senses.lessons(left, right, Steps(ignore, 0))) == [
        (("cortex", "kidney"), ("cortex", "renal"))
    ]


def test_a_sense_of_many_concepts_makes_few_pairs() -> None:
    words = Labels([])
    labels, owners = [("thing",)] * 100, list(range(100))
    senses = Senses(background(concept("b", "thing")), words)
    shared = SharedSenses(senses, (labels, owners), (labels, owners), Steps(ignore, 0))
    assert len(shared.pairs) == 100 * 30


def test_a_general_term_has_only_itself_as_sense() -> None:
    known = background(*(concept(f"urn:b:{n}", "thing", f"name {n}") for n in range(1_001)))
    assert known.senses("thing") == {"thing"}
    assert known.senses("name 1") == {"name 1", "urn:b:1"}


def test_the_senses_of_a_concept_and_the_names_of_a_label_are_limited_to_100() -> None:
    words = Labels([])
    ambiguous = (concept(f"urn:b:{n:03}", "thing", f"name {n} {n}") for n in range(300))
    senses = Senses(background(*ambiguous), words)
    shared = SharedSenses(senses, ([("thing",)], [0]), ([("thing",)], [0]), Steps(ignore, 0))
    assert len(shared.of_left(0)) == 100
    assert len(list(senses.other_names(("thing",)))) < 100


def test_relations_of_an_ontology_are_reported() -> None:
    known = background(
        concept("urn:b:nail", "nail", wholes=["urn:b:thumb"]),
        concept("urn:b:thumb", "thumb", "pollex", parents=["urn:b:finger"]),
        concept("urn:b:finger", "finger", "digit of hand"),
    )
    left = ontology(concept("l:1", "pollex"), concept("l:2", "nails"))
    right = ontology(concept("r:1", "hand digit"), concept("r:2", "thumb"))
    is_a = candidates(left, right, known, Relation.IS_A)["l:1", "r:1"]
    part_of = candidates(left, right, known, Relation.PART_OF)["l:2", "r:2"]
    path = "urn:b:thumb > urn:b:finger > digit of hand"
    assert is_a.evidence == (f"the background says is-a: {path}",)
    assert part_of.evidence == ("the background says part-of: urn:b:nail > urn:b:thumb > thumb",)


def test_fields_are_related_through_concepts() -> None:
    known = background(
        concept("urn:b:1", "telephone", "phone"),
        concept("urn:b:2", "number", "no"),
        concept("urn:b:3", "north", "no"),
    )
    path = known.query("Telephone", "phone")
    assert path is not None
    assert (path.relation, str(path)) == (Relation.EQUAL, "telephone > urn:b:1 > phone")
    assert path.score == pytest.approx(0.98**2)
    assert known.query("number", "north") is None
    left, right = names_of(["phone_number"]), names_of(["telephone", "north"])
    vocabulary = Vocabulary(left, right, known)
    assert vocabulary.are_equal("phone", "telephone")
    assert not vocabulary.are_equal("number", "north")


def test_equal_words_are_not_transitive() -> None:
    statements = (Statement(word, "no", Relation.EQUAL) for word in ("number", "north"))
    known = Background(statements)
    assert known.equal_terms("number") == ("no",)
    assert known.equal_terms("no") == ("north", "number")


def test_an_identifier_is_not_a_term() -> None:
    known = background(concept("urn:b:1", "heart"))
    known.add(Statement("urn b 1", "liver", Relation.EQUAL))
    assert known.senses("urn:b:1") == {"urn:b:1", "heart"}
    assert known.senses("urn b 1") == {"urn b 1", "liver"}
    assert known.senses("spleen") == frozenset()


def test_looking_up_senses_and_lessons_of_labels_can_be_cancelled() -> None:
    labels: list[Label] = [(f"word{n}",) for n in range(2_500)]
    side = labels, list(range(len(labels)))
    senses = Senses(background(concept("b", *(f"word{n}" for n in range(900)))), Labels([]))
    operations: list[Callable[[Steps], object]] = [
        lambda steps: SharedSenses(senses, side, side, steps),
        lambda steps: list(senses.lessons(labels, labels, steps)),
    ]
    for operation in operations:
        complete = ProgressRecorder()
        operation(Steps(complete, 5_000))
        assert [done for done, _ in complete.reports] == [1_000, 2_000, 2_500, 3_500, 4_500, 5_000]
        for cancel_at in (1, 5):
            with pytest.raises(RunCancelled):
                operation(Steps(ProgressRecorder(cancel_at), 5_000))
