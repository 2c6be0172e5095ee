"""A translation model of labels between two ontologies: words stay, change, are added or removed.

Two ontologies have different habits: one says `heart left ventricle` and `spleen`, the other `left
ventricle` and `splenic`. The probability of each change of a word is estimated from the pairs
matched so far, starting with equal labels; then more pairs match, and the next estimate is better.
This is hard expectation-maximisation of a translation model without word order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from rapidfuzz.distance import JaroWinkler

__all__ = ["Label", "Translations"]

_PRIOR_WEIGHT: Final = 4.0
"""The weight of the prior, in occurrences of a word."""
_STAY_PRIOR: Final = 0.8
_REMOVAL_PRIOR: Final = 0.03
_MAX_REMOVAL_PRIOR: Final = 0.25
_USUAL_OCCURRENCES: Final = 100
"""Labels with a word from which it carries little information, so that it is often omitted."""
_MIN_LABELS: Final = 1_000
"""Minimum number of labels assumed for the rarity of words, however small the ontologies are."""
_INITIAL_PRIOR: Final = 0.02
_DEFAULT_PRIOR: Final = 0.0005
_SIMILARITY_PRIORS: Final = ((0.93, 0.2), (0.88, 0.1), (0.8, 0.03))
"""The prior of a change, by the minimum Jaro-Winkler similarity of the words."""
_MIN_WORD_LENGTH: Final = 4
_EXPLAINED_BITS: Final = -1.0
"""Bits of an added or removed word that an ancestor of the concept has."""
_MAX_WORD_BITS: Final = 6.0
_MAX_SHARED_BITS: Final = 12.0
"""Maximum bits of a shared word (`_MAX_WORD_BITS`), and of all shared words."""
_SHARED_WEIGHT: Final = 0.25
_STAY_WEIGHT: Final = 0.3

Label: TypeAlias = tuple[str, ...]
"""The distinct words of a label, sorted."""

Words: TypeAlias = frozenset[str]


class _Change(NamedTuple):
    """Words of the left that become words of the right; empty for added or removed words."""

    before: str
    after: str


class Translations:
    """Probabilities of changes of words from the left to the right.

    Args:
        labels: The labels of both ontologies.
    """

    def __init__(self, labels: Iterable[Label]) -> None:
        all_labels = list(labels)
        self._labels = max(len(all_labels), _MIN_LABELS)
        self._occurrences = Counter(word for label in all_labels for word in label)
        self.learn(())

    def learn(self, pairs: Iterable[tuple[Label, Label]]) -> None:
        """Count changes in pairs of labels with one meaning; replace earlier counts."""
        self._left: Counter[str] = Counter()
        self._right: Counter[str] = Counter()
        self._changes: Counter[_Change] = Counter()
        for left, right in pairs:
            self._left.update(left)
            self._right.update(right)
            self._changes.update(_Change(word, word) for word in left if word in right)
            changes = _changes(left, right)
            self._changes.update(changes)
            self._left.update(change.before for change in changes if " " in change.before)

    def bits(self, left: Label, right: Label, above_left: Words, above_right: Words) -> float:
        """Return the evidence that the right label translates the left label; 0: equal odds.

        Args:
            above_left: Words of the left concept's ancestors; `above_right` of the right's.
        """
        shared, bits = 0.0, 0.0
        for word in left:
            if word in right:
                bits += _STAY_WEIGHT * self._changed_bits(_Change(word, word))
                shared += min(_MAX_WORD_BITS, math.log2(self._labels / self._occurrences[word]))
        for change in _changes(left, right):
            bits += self._change_bits(change, above_left, above_right)
            if change.before and change.after:
                shared += _MAX_WORD_BITS * max(0.0, _similarity(*change) - 0.5)
        return bits + _SHARED_WEIGHT * min(shared, _MAX_SHARED_BITS)

    def _change_bits(self, change: _Change, above_left: Words, above_right: Words) -> float:
        removed = added = 0.0
        if change.before:
            removed = self._changed_bits(_Change(change.before, ""))
            if change.before in above_right:
                removed = max(removed, _EXPLAINED_BITS)
        if change.after:
            added = self._added_bits(change.after)
            if change.after in above_left:
                added = max(added, _EXPLAINED_BITS)
        if not change.before or not change.after:
            return removed + added
        replaced = self._changed_bits(change)
        return replaced if " " in change.before + change.after else max(replaced, removed + added)

    def _changed_bits(self, change: _Change) -> float:
        count, total = self._changes[change], self._left[change.before]
        return math.log2((count + _PRIOR_WEIGHT * self._prior(change)) / (total + _PRIOR_WEIGHT))

    def _added_bits(self, word: str) -> float:
        count, total = self._changes[_Change("", word)], self._right[word]
        return math.log2(
            (count + _PRIOR_WEIGHT * self._removal_prior(word)) / (total + _PRIOR_WEIGHT)
        )

    def _prior(self, change: _Change) -> float:
        before, after = change
        if before == after:
            return _STAY_PRIOR
        if not after:
            return self._removal_prior(before)
        if len(after) == 1 and len(before) >= _MIN_WORD_LENGTH and before.startswith(after):
            return _INITIAL_PRIOR
        similarity = _similarity(before, after)
        return next(
            (prior for min_similarity, prior in _SIMILARITY_PRIORS if similarity >= min_similarity),
            _DEFAULT_PRIOR,
        )

    def _removal_prior(self, words: str) -> float:
        occurrences = min(self._occurrences[word] for word in words.split())
        return min(_MAX_REMOVAL_PRIOR, _REMOVAL_PRIOR * (1 + occurrences / _USUAL_OCCURRENCES))


@lru_cache(maxsize=262_144)
def _changes(left: Label, right: Label) -> tuple[_Change, ...]:
    """Pair the differing words: first by similar spelling, then the remaining ones."""
    before = [word for word in left if word not in right]
    after = [word for word in right if word not in left]
    changes = []
    while before and after:
        similarity, one, other = max((_similarity(a, b), a, b) for a in before for b in after)
        if similarity < _SIMILARITY_PRIORS[-1][0]:
            break
        changes.append(_Change(one, other))
        before.remove(one)
        after.remove(other)
    if before and after:
        return (*changes, _Change(" ".join(before), " ".join(after)))
    removed = [_Change(word, "") for word in before]
    return (*changes, *removed, *(_Change("", word) for word in after))


@lru_cache(maxsize=262_144)
def _similarity(one: str, other: str) -> float:
    if " " in one + other or min(len(one), len(other)) < _MIN_WORD_LENGTH:
        return 0.0
    if one.isdigit() or other.isdigit():
        return 0.0
    return float(JaroWinkler.similarity(one, other))
