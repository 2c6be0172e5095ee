"""What concepts mean in a background, and what that says about pairs of them.

The senses of a concept are what the background states to be equal to one of its labels: concepts
of an ontology that have this name, or other terms. Labels of the two sides are compared with each
other by senses, never with those of the background by likeness: a synonym that only resembles a
label would join what nobody stated to be equal.
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

_COMMON: Final = 1.0
"""Bits for a pair with a common sense, whose labels then count as -1 at worst."""
_APART: Final = 3.0
"""Bits against a pair of which the background knows both, without a common sense."""
_MOST_SENSES: Final = 100
"""Senses that are kept of one concept."""
_MOST_NAMES: Final = 100
"""Names of the senses of a label that are looked at."""
_REPORTED: Final = 1_000
"""Labels between two reports of progress."""
_MOST_PAIRS: Final = 30
"""Concepts of the right that are paired with one of the left for common senses."""


class Senses:
    """The senses of labels, which are compared with the background's terms without word order."""

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
        """Return the terms of the background that have a label."""
        return self._terms.get(label, [])

    def other_names(self, label: Label) -> Iterator[Label]:
        """Yield what else the senses of a label are called, in a fixed order."""
        names = (
            name
            for sense in sorted(self.of(label))
            for name in sorted(self._background.senses(sense) - self._background.concepts)
        )
        found = dict.fromkeys(self._words.label(name) for name in islice(names, _MOST_NAMES))
        yield from (name for name in found if name and name != label)

    def taught(
        self, left: Sequence[Label], right: Sequence[Label], steps: Steps
    ) -> Iterator[tuple[Label, Label]]:
        """Yield names of one sense that differ in a single word, which the words thus have, too.

        Only those whose words the other side uses: the names of a background have habits of its
        own. Each label of either side is a step.
        """
        known = [{word for label in side for word in label} for side in (left, right)]
        ours, theirs = (steps.over(side, _REPORTED) for side in (left, right))
        found = {(label, name): None for label in ours for name in self.other_names(label)}
        found |= {(name, label): None for label in theirs for name in self.other_names(label)}
        for one, other in found:
            before, after = set(one) - set(other), set(other) - set(one)
            if len(before) == len(after) == 1 and before <= known[0] and after <= known[1]:
                yield one, other


class SharedSenses:
    """The senses of the concepts of two sides, by numbers.

    Args:
        left: Labels of concepts, and the number of the concept that has each.
        steps: Each label of either side is one.
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
        """Concepts with a common sense, and positions of labels that have it."""
        having: dict[str, list[int]] = defaultdict(list)
        for number in sorted(self._right):
            for sense, position in self._right[number].items():
                having[sense].append(position)
        for number in sorted(self._left):
            pairs = (
                ((number, owners[other]), (position, other))
                for sense, position in self._left[number].items()
                for other in having.get(sense, ())
            )
            yield from islice(pairs, _MOST_PAIRS)

    @property
    def pairs(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        """Pairs of concepts with a common sense, by their numbers: positions of their labels."""
        return self._pairs

    def of_left(self, concept: int) -> Sequence[str]:
        return list(self._left.get(concept, ()))

    def weighed(self, bits: float, pair: tuple[int, int]) -> float:
        """Add what the background says to the bits of a pair's labels."""
        if pair in self._pairs:
            return max(bits, -_COMMON) + _COMMON
        return bits - _APART if self._known(pair) else bits

    def _known(self, pair: tuple[int, int]) -> bool:
        return pair[0] in self._left and pair[1] in self._right

    def reason(self, pair: tuple[int, int]) -> str:
        """Return what the background says, in words; empty: it says nothing."""
        if pair in self._pairs:
            left, right = self._left[pair[0]], self._right[pair[1]]
            sense = next(each for each in left if each in right)
            return f"the background knows both as “{sense}”"
        return "the background knows both, and tells them apart" if self._known(pair) else ""


def _positions(
    senses: Senses, labels: Sequence[Label], owners: Sequence[int], steps: Steps
) -> Mapping[int, Mapping[str, int]]:
    """The senses of each concept that has some, and the position of the first label with each."""
    found: dict[int, dict[str, int]] = {}
    for position, label in enumerate(steps.over(labels, _REPORTED)):
        kept = found.get(owner := owners[position], {})
        for sense in sorted(senses.of(label))[: _MOST_SENSES - len(kept)]:
            kept.setdefault(sense, position)
        if kept:
            found[owner] = kept
    return found
