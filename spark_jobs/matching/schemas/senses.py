"""The senses of concepts in a background, and their evidence about pairs of concepts.

The senses of a concept are the concepts of an ontology, or terms, that the background states to be
equal to one of its labels. Labels of the two sides are compared by senses, never with the
background's labels by similarity: a synonym that only resembles a label would join concepts that
nobody stated to be equal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from spark_jobs.matching.schemas.background import Background
from spark_jobs.matching.schemas.labels import Labels
from spark_jobs.matching.schemas.steps import Steps
from spark_jobs.matching.schemas.translations import Label

__all__ = ["Senses", "SharedSenses"]

_COMMON_BITS: Final = 1.0
"""Bits for a pair with a common sense; its labels then count as -1 at least."""
_SEPARATE_BITS: Final = 3.0
"""Bits against a pair of concepts that both have senses, but none in common."""
_MAX_SENSES: Final = 100
"""Maximum senses of one concept."""
_MAX_NAMES: Final = 100
"""Maximum names of the senses of a label."""
_REPORT_INTERVAL: Final = 1_000
"""Labels between two reports of progress."""
_MAX_PAIRS: Final = 30
"""Maximum concepts of the right paired with a concept of the left for common senses."""


class Senses:
    """The senses of labels; labels match the background's terms regardless of word order."""

    def __init__(self, background: Background, words: Labels) -> None:
        self._background = background
        self._words = words
        self._terms: dict[Label, list[str]] = defaultdict(list)
        for term in background.terms:
            self._terms[words.label(term)].append(term)

    def of(self, label: Label) -> frozenset[str]:
        terms = self.terms(label)
        return frozenset(sense for term in terms for sense in self._background.senses(term))

    def terms(self, label: Label) -> Sequence[str]:
        """Return the background's terms with a label."""
        return self._terms.get(label, [])

    def other_names(self, label: Label) -> Iterator[Label]:
        """Yield other names of the senses of a label, in a fixed order."""
        names = (
            name
            for sense in sorted(self.of(label))
            for name in sorted(self._background.senses(sense) - self._background.concepts)
        )
        labels = dict.fromkeys(self._words.label(name) for name in islice(names, _MAX_NAMES))
        yield from (name for name in labels if name and name != label)

    def lessons(
        self, left: Sequence[Label], right: Sequence[Label], steps: Steps
    ) -> Iterator[tuple[Label, Label]]:
        """Yield names of one sense that differ in a single word: these words are synonyms.

        Only names whose words the other side uses are yielded, because a background has its own
        naming habits. Each label of either side is a step.
        """
        vocabularies = [{word for label in side for word in label} for side in (left, right)]
        ours, theirs = (steps.over(side, _REPORT_INTERVAL) for side in (left, right))
        names = {(label, name): None for label in ours for name in self.other_names(label)}
        names |= {(name, label): None for label in theirs for name in self.other_names(label)}
        for one, other in names:
            before, after = set(one) - set(other), set(other) - set(one)
            if (
                len(before) == len(after) == 1
                and before <= vocabularies[0]
                and after <= vocabularies[1]
            ):
                yield one, other


class SharedSenses:
    """The senses of the concepts of two sides, by numbers.

    Args:
        left: Labels of concepts, and the number of each label's concept.
        steps: Counts the labels of both sides.
    """

    def __init__(
        self,
        senses: Senses,
        left: tuple[Sequence[Label], Sequence[int]],
        right: tuple[Sequence[Label], Sequence[int]],
        steps: Steps,
    ) -> None:
        self._left, self._right = (_positions(senses, *side, steps) for side in (left, right))
        self._pairs = dict(self._common_pairs(right[1]))

    def _common_pairs(
        self, owners: Sequence[int]
    ) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield concepts with a common sense, and positions of labels with that sense."""
        positions: dict[str, list[int]] = defaultdict(list)
        for number in sorted(self._right):
            for sense, position in self._right[number].items():
                positions[sense].append(position)
        for number in sorted(self._left):
            pairs = (
                ((number, owners[other]), (position, other))
                for sense, position in self._left[number].items()
                for other in positions.get(sense, ())
            )
            yield from islice(pairs, _MAX_PAIRS)

    @property
    def pairs(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """Pairs of concepts with a common sense, by their numbers: positions of their labels."""
        return self._pairs

    def of_left(self, concept: int) -> Sequence[str]:
        return list(self._left.get(concept, ()))

    def weigh(self, bits: float, pair: tuple[int, int]) -> float:
        """Add the background's evidence to the bits of a pair's labels."""
        if pair in self._pairs:
            return max(bits, -_COMMON_BITS) + _COMMON_BITS
        return bits - _SEPARATE_BITS if self._both_have_senses(pair) else bits

    def _both_have_senses(self, pair: tuple[int, int]) -> bool:
        return pair[0] in self._left and pair[1] in self._right

    def reason(self, pair: tuple[int, int]) -> str:
        """Return the background's evidence as text; empty: none."""
        if pair in self._pairs:
            left, right = self._left[pair[0]], self._right[pair[1]]
            sense = next(candidate for candidate in left if candidate in right)
            return f"the background knows both as “{sense}”"
        return (
            "the background knows both, and tells them apart"
            if self._both_have_senses(pair)
            else ""
        )


def _positions(
    senses: Senses, labels: Sequence[Label], owners: Sequence[int], steps: Steps
) -> Mapping[int, Mapping[str, int]]:
    """Return each concept's senses, if any, and the position of the first label with each sense."""
    concepts: dict[int, dict[str, int]] = {}
    for position, label in enumerate(steps.over(labels, _REPORT_INTERVAL)):
        concept_senses = concepts.get(owner := owners[position], {})
        for sense in sorted(senses.of(label))[: _MAX_SENSES - len(concept_senses)]:
            concept_senses.setdefault(sense, position)
        if concept_senses:
            concepts[owner] = concept_senses
    return concepts
