"""Concepts of two ontologies: labels, what changes between them, and structure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import pytest

from spark_jobs.matching.schemas.assignment import one_to_one
from spark_jobs.matching.schemas.background import Background, Path, Statement
from spark_jobs.matching.schemas.concepts import concept_candidates
from spark_jobs.matching.schemas.elements import Candidate
from spark_jobs.matching.schemas.labels import Labels, label_pairs
from spark_jobs.matching.schemas.ontologies import Concept, Ontology
from spark_jobs.matching.schemas.relations import Relation
from spark_jobs.matching.schemas.steps import Steps
from spark_jobs.matching.schemas.translations import Label, Translations
from spark_jobs.runner.port import RunCancelled

ORGANS = ("heart", "liver", "kidney", "lung", "spleen", "stomach", "tongue", "pancreas")


def ontology(*concepts: Concept) -> Ontology:
    return {each.identifier: each for each in concepts}


def concept(
    identifier: str, *labels: str, parents: Sequence[str] = (), wholes: Sequence[str] = ()
) -> Concept:
    return Concept(identifier, labels, 1, list(parents), list(wholes))


def chosen(candidates: Iterable[Candidate]) -> dict[str, str]:
    equal = [each for each in candidates if each.relation is Relation.EQUAL and each.bits >= 0]
    return dict(one_to_one((each.bits, each.left, each.right) for each in equal))


def test_labels_are_words_without_order_plurals_and_numerals() -> None:
    labels = Labels(["gallbladder"])
    assert labels.label("Gall_Bladder") == labels.label("gallbladder")
    assert labels.label("Valves of the Heart") == labels.label("heart valve")
    assert labels.label("Lobule IV") == labels.label("fourth lobules") == labels.label("lobule 4")
    assert labels.label("C7 vertebra") == ("7", "c", "vertebra")


def test_a_change_that_was_seen_becomes_probable() -> None:
    labels = Labels([])
    pairs = [(labels.label(f"{organ} wall"), labels.label(f"{organ} tissue")) for organ in ORGANS]
    translations = Translations([label for pair in pairs for label in pair])
    none: frozenset[str] = frozenset()
    before = translations.bits(*pairs[0], none, none)
    translations.learn(pairs[1:])
    assert before < 0 < translations.bits(*pairs[0], none, none)


def test_a_habit_of_one_ontology_is_learned_from_equal_labels() -> None:
    left = [concept(f"l{n}", f"{organ} smooth muscle") for n, organ in enumerate(ORGANS)]
    right = [concept(f"r{n}", f"{organ} smooth muscle tissue") for n, organ in enumerate(ORGANS)]
    found = chosen(concept_candidates(ontology(*left), ontology(*right), Background()))
    assert found == {f"l{n}": f"r{n}" for n in range(len(ORGANS))}


def test_structure_decides_between_equal_labels() -> None:
    left = ontology(
        concept("l:hand", "hand"),
        concept("l:foot", "foot"),
        concept("l:1", "digit", wholes=["l:foot"]),
    )
    right = ontology(
        concept("r:hand", "hand"),
        concept("r:foot", "foot"),
        concept("r:1", "digit", wholes=["r:hand"]),
        concept("r:2", "digit", wholes=["r:foot"]),
    )
    assert chosen(concept_candidates(left, right, Background()))["l:1"] == "r:2"


def test_a_word_that_something_above_has_may_be_missing() -> None:
    left = ontology(concept("l:h", "heart"), concept("l:v", "heart ventricle"))
    right = [concept("r:h", "heart"), concept("r:v", "ventricle", wholes=["r:h"])]
    bits = {
        (each.left, each.right): each.bits
        for each in concept_candidates(left, ontology(*right), Background())
    }
    right[1].wholes.clear()
    without = {
        (each.left, each.right): each.bits
        for each in concept_candidates(left, ontology(*right), Background())
    }
    assert bits["l:v", "r:v"] > without["l:v", "r:v"]


def test_the_background_adds_senses_and_relations() -> None:
    left = ontology(concept("l:1", "thumb"), concept("l:2", "auricle"))
    right = ontology(concept("r:1", "finger"), concept("r:2", "outer ear"))
    background = Background(
        [
            Statement("thumb", "finger", Relation.IS_A),
            Statement("auricle", "outer ear", Relation.EQUAL),
        ]
    )
    found = {
        (each.left, each.right): each.relation
        for each in concept_candidates(left, right, background)
        if each.bits > 0
    }
    assert found == {("l:1", "r:1"): Relation.IS_A, ("l:2", "r:2"): Relation.EQUAL}


def test_circles_of_relations_end() -> None:
    ring = ontology(*(concept(f"{n}", f"part {n}", parents=[f"{(n + 1) % 5}"]) for n in range(5)))
    assert chosen(concept_candidates(ring, ring, Background())) == {each: each for each in ring}


def test_accepted_pairs_teach_what_changes() -> None:
    left = [concept(f"l{n}", f"{organ} wall") for n, organ in enumerate(ORGANS)]
    right = [concept(f"r{n}", f"{organ} xyz") for n, organ in enumerate(ORGANS)]
    sides = ontology(*left), ontology(*right)
    accepted = [(f"l{n}", f"r{n}") for n in range(4)]
    before, after = (
        {
            (each.left, each.right): each.bits
            for each in concept_candidates(*sides, Background(), accepted=known)
        }
        for known in ((), accepted)
    )
    assert ("l7", "r7") not in before
    assert after["l7", "r7"] > 0


class Loop:
    """Counts reports of progress, and ends the run at one of them."""

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.seen: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.seen.append((done, total))
        if len(self.seen) == self.last:
            raise RunCancelled


def test_looking_for_labels_is_cancelled_within_them() -> None:
    labels: list[Label] = [(f"word{n}", "heart") for n in range(1_200)]
    whole, ended = Loop(), Loop(2)
    pairs = list(label_pairs(labels, labels, Steps(whole, len(labels))))
    assert [done for done, _ in whole.seen] == [500, 1_000, 1_200]
    found: list[tuple[int, int]] = []
    with pytest.raises(RunCancelled):
        found.extend(label_pairs(labels, labels, Steps(ended, len(labels))))
    assert {left for left, _ in found} == {*range(1_000)}
    assert len(found) < len(pairs)


def test_progress_only_grows_and_ends_with_all_that_there_is() -> None:
    side = ontology(*(concept(f"{n}", f"{organ}") for n, organ in enumerate(ORGANS)))
    background = Background([Statement("heart", "lung", Relation.PART_OF)])
    progress = Loop()
    found = list(concept_candidates(side, side, background, progress=progress))
    assert any(each.relation is Relation.PART_OF for each in found)
    assert all(one[0] <= other[0] for one, other in pairwise(progress.seen))
    done, total = progress.seen[-1]
    assert done == total


def test_relations_of_senses_are_cancelled_within_a_concept() -> None:
    """Each sense may be related to many terms, and each concept have many senses."""
    names = [f"name {n}x" for n in range(40)]
    left = ontology(concept("l", *names))
    right = ontology(concept("r", "whole"))
    background = Background([Statement(name, "whole", Relation.PART_OF) for name in names])
    whole = Loop()
    candidates = list(concept_candidates(left, right, background, progress=whole))
    assert [each.relation for each in candidates] == [Relation.PART_OF]
    for last in (len(whole.seen) - len(names), len(whole.seen) - 1):
        with pytest.raises(RunCancelled):
            list(concept_candidates(left, right, background, progress=Loop(last)))


def test_a_sense_of_many_concepts_is_looked_up_once() -> None:
    looked_up: list[str] = []

    class Counting(Background):
        def reachable(self, term: str, *, min_score: float) -> Iterator[tuple[str, Path]]:
            looked_up.append(term)
            return super().reachable(term, min_score=min_score)

    left = ontology(*(concept(f"l{n}", "thumb") for n in range(30)))
    right = ontology(*(concept(f"r{n}", f"finger {n}x") for n in range(5)))
    background = Counting(Statement("thumb", f"finger {n}x", Relation.IS_A) for n in range(5))
    found = list(concept_candidates(left, right, background))
    assert looked_up == ["thumb"]
    related = [(each.left, each.right) for each in found if each.relation is Relation.IS_A]
    assert related == [(f"l{n}", f"r{m}") for n in range(30) for m in range(3)]
