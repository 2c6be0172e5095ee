"""Concepts of two ontologies: labels, translations between them, and structure."""

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
    return {concept_.identifier: concept_ for concept_ in concepts}


def concept(
    identifier: str, *labels: str, parents: Sequence[str] = (), wholes: Sequence[str] = ()
) -> Concept:
    return Concept(identifier, labels, 1, list(parents), list(wholes))


def chosen(candidates: Iterable[Candidate]) -> dict[str, str]:
    equal = [c for c in candidates if c.relation is Relation.EQUAL and c.bits >= 0]
    return dict(one_to_one((c.bits, c.left, c.right) for c in equal))


def test_labels_are_normalised_unordered_words() -> None:
    labels = Labels(["gallbladder"])
    assert labels.label("Gall_Bladder") == labels.label("gallbladder")
    assert labels.label("Valves of the Heart") == labels.label("heart valve")
    assert labels.label("Lobule IV") == labels.label("fourth lobules") == labels.label("lobule 4")
    assert labels.label("C7 vertebra") == ("7", "c", "vertebra")


def test_an_observed_translation_becomes_probable() -> None:
    labels = Labels([])
    pairs = [(labels.label(f"{organ} wall"), labels.label(f"{organ} tissue")) for organ in ORGANS]
    translations = Translations([label for pair in pairs for label in pair])
    no_words: frozenset[str] = frozenset()
    before = translations.bits(*pairs[0], no_words, no_words)
    translations.learn(pairs[1:])
    assert before < 0 < translations.bits(*pairs[0], no_words, no_words)


def test_a_systematic_difference_is_learned_from_equal_labels() -> None:
    left = [concept(f"l{n}", f"{organ} smooth muscle") for n, organ in enumerate(ORGANS)]
    right = [concept(f"r{n}", f"{organ} smooth muscle tissue") for n, organ in enumerate(ORGANS)]
    pairs = chosen(concept_candidates(ontology(*left), ontology(*right), Background()))
    assert pairs == {f"l{n}": f"r{n}" for n in range(len(ORGANS))}


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


def test_a_word_of_an_ancestor_can_be_missing() -> None:
    left = ontology(concept("l:h", "heart"), concept("l:v", "heart ventricle"))
    right = [concept("r:h", "heart"), concept("r:v", "ventricle", wholes=["r:h"])]
    bits = {
        (candidate.left, candidate.right): candidate.bits
        for candidate in concept_candidates(left, ontology(*right), Background())
    }
    right[1].wholes.clear()
    bits_without_parent = {
        (candidate.left, candidate.right): candidate.bits
        for candidate in concept_candidates(left, ontology(*right), Background())
    }
    assert bits["l:v", "r:v"] > bits_without_parent["l:v", "r:v"]


def test_the_background_adds_senses_and_relations() -> None:
    left = ontology(concept("l:1", "thumb"), concept("l:2", "auricle"))
    right = ontology(concept("r:1", "finger"), concept("r:2", "outer ear"))
    background = Background(
        [
            Statement("thumb", "finger", Relation.IS_A),
            Statement("auricle", "outer ear", Relation.EQUAL),
        ]
    )
    relations = {
        (candidate.left, candidate.right): candidate.relation
        for candidate in concept_candidates(left, right, background)
        if candidate.bits > 0
    }
    assert relations == {("l:1", "r:1"): Relation.IS_A, ("l:2", "r:2"): Relation.EQUAL}


def test_cyclic_relations_terminate() -> None:
    ring = ontology(*(concept(f"{n}", f"part {n}", parents=[f"{(n + 1) % 5}"]) for n in range(5)))
    assert chosen(concept_candidates(ring, ring, Background())) == {
        identifier: identifier for identifier in ring
    }


def test_translations_are_learned_from_accepted_pairs() -> None:
    left = [concept(f"l{n}", f"{organ} wall") for n, organ in enumerate(ORGANS)]
    right = [concept(f"r{n}", f"{organ} xyz") for n, organ in enumerate(ORGANS)]
    sides = ontology(*left), ontology(*right)
    accepted = [(f"l{n}", f"r{n}") for n in range(4)]
    before, after = (
        {
            (candidate.left, candidate.right): candidate.bits
            for candidate in concept_candidates(*sides, Background(), accepted=pairs)
        }
        for pairs in ((), accepted)
    )
    assert ("l7", "r7") not in before
    assert after["l7", "r7"] > 0


class ProgressRecorder:
    """Records progress reports, and cancels the run at one of them."""

    def __init__(self, cancel_at: int | None = None) -> None:
        self.cancel_at = cancel_at
        self.reports: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.reports.append((done, total))
        if len(self.reports) == self.cancel_at:
            raise RunCancelled


def test_a_search_for_labels_can_be_cancelled() -> None:
    labels: list[Label] = [(f"word{n}", "heart") for n in range(1_200)]
    complete, cancelled = ProgressRecorder(), ProgressRecorder(2)
    pairs = list(label_pairs(labels, labels, Steps(complete, len(labels))))
    assert [done for done, _ in complete.reports] == [500, 1_000, 1_200]
    found_pairs: list[tuple[int, int]] = []
    with pytest.raises(RunCancelled):
        found_pairs.extend(label_pairs(labels, labels, Steps(cancelled, len(labels))))
    assert {left for left, _ in found_pairs} == {*range(1_000)}
    assert len(found_pairs) < len(pairs)


def test_progress_grows_monotonically_to_the_total() -> None:
    side = ontology(*(concept(f"{n}", f"{organ}") for n, organ in enumerate(ORGANS)))
    background = Background([Statement("heart", "lung", Relation.PART_OF)])
    progress = ProgressRecorder()
    candidates = list(concept_candidates(side, side, background, progress=progress))
    assert any(candidate.relation is Relation.PART_OF for candidate in candidates)
    assert all(report[0] <= later[0] for report, later in pairwise(progress.reports))
    done, total = progress.reports[-1]
    assert done == total


def test_relations_of_senses_can_be_cancelled_within_a_concept() -> None:
    """A sense can be related to many terms, and a concept can have many senses."""
    names = [f"name {n}x" for n in range(40)]
    left = ontology(concept("l", *names))
    right = ontology(concept("r", "whole"))
    background = Background([Statement(name, "whole", Relation.PART_OF) for name in names])
    complete = ProgressRecorder()
    candidates = list(concept_candidates(left, right, background, progress=complete))
    assert [candidate.relation for candidate in candidates] == [Relation.PART_OF]
    for cancel_at in (len(complete.reports) - len(names), len(complete.reports) - 1):
        with pytest.raises(RunCancelled):
            list(concept_candidates(left, right, background, progress=ProgressRecorder(cancel_at)))


def test_a_sense_of_many_concepts_is_looked_up_once() -> None:
    queried_terms: list[str] = []

    class Counting(Background):
        def reachable(self, term: str, *, min_score: float) -> Iterator[tuple[str, Path]]:
            queried_terms.append(term)
            return super().reachable(term, min_score=min_score)

    left = ontology(*(concept(f"l{n}", "thumb") for n in range(30)))
    right = ontology(*(concept(f"r{n}", f"finger {n}x") for n in range(5)))
    background = Counting(Statement("thumb", f"finger {n}x", Relation.IS_A) for n in range(5))
    candidates = list(concept_candidates(left, right, background))
    assert queried_terms == ["thumb"]
    related = [(c.left, c.right) for c in candidates if c.relation is Relation.IS_A]
    assert related == [(f"l{n}", f"r{m}") for n in range(30) for m in range(3)]
