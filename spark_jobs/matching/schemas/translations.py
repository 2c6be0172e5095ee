"""How the labels of one ontology become those of another: by words that stay, change, come, go.

Two ontologies differ by habits: one says `heart left ventricle` and `spleen`, the other `left
ventricle` and `splenic`. How probable each change of a word is, is estimated from the pairs that
have been matched so far, starting with equal labels; so more pairs can be matched, and the next
estimate is better. This is expectation-maximisation with hard decisions, over a translation model
without order of words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from rapidfuzz.distance import JaroWinkler

__all__ = ["Label", "Translations"]

_STRENGTH: Final = 4.0
"""How many occurrences of a word the prior counts as."""
_STAYS: Final = 0.8
_GOES: Final = 0.03
_MOST_GOES: Final = 0.25
_USUAL: Final = 100
"""Labels with a word from which on it says little, so that it may well be left out."""
_FEWEST: Final = 1_000
"""Labels of which a word that occurs once is rare, however few these ontologies have."""
_INITIAL: Final = 0.02
_OTHERWISE: Final = 0.0005
_BY_SIMILARITY: Final = ((0.93, 0.2), (0.88, 0.1), (0.8, 0.03))
"""The prior of a change, by the Jaro-Winkler similarity of the words from which on it holds."""
_SHORTEST: Final = 4
_EXPLAINED: Final = -1.0
"""Bits of a word that comes or goes, if something that the concept is or is part of has it."""
_WORD: Final = 6.0
_SHARED: Final = 12.0
"""Most bits that a word, and all words together, say of how much the labels share."""
_OF_SHARED: Final = 0.25
_OF_STAYING: Final = 0.3

Label: TypeAlias = tuple[str, ...]
"""The different words of a label, sorted."""

Words: TypeAlias = frozenset[str]


class _Change(NamedTuple):
    """Words of the left that become words of the right; empty: they come, or go."""

    before: str
    after: str


class Translations:
    """Probabilities of changes of words from the left to the right.

    Args:
        labels: Of both ontologies.
    """

    def __init__(self, labels: Iterable[Label]) -> None:
        all_labels = list(labels)
        self._labels = max(len(all_labels), _FEWEST)
        self._occurrences = Counter(word for label in all_labels for word in label)
        self.learn(())

    def learn(self, pairs: Iterable[tuple[Label, Label]]) -> None:
        """Count changes in pairs of labels that have one meaning; replaces what was learned."""
        self._left: Counter[str] = Counter()
        self._right: Counter[str] = Counter()
        self._changes: Counter[_Change] = Counter()
        for left, right in pairs:
            self._left.update(left)
            self._right.update(right)
            self._changes.update(_Change(word, word) for word in left if word in right)
            changes = _changes(left, right)
            self._changes.update(changes)
            self._left.update(each.before for each in changes if " " in each.before)

    def bits(self, left: Label, right: Label, above_left: Words, above_right: Words) -> float:
        """Return how well the right label translates the left one; 0 is about as good as not.

        Args:
            above_left: Words of what the left concept is, or is part of.
        """
        shared, bits = 0.0, 0.0
        for word in left:
            if word in right:
                bits += _OF_STAYING * self._changed(_Change(word, word))
                shared += min(_WORD, math.log2(self._labels / self._occurrences[word]))
        for change in _changes(left, right):
            bits += self._change_bits(change, above_left, above_right)
            if change.before and change.after:
                shared += _WORD * max(0.0, _likeness(*change) - 0.5)
        return bits + _OF_SHARED * min(shared, _SHARED)

    def _change_bits(self, change: _Change, above_left: Words, above_right: Words) -> float:
        gone = come = 0.0
        if change.before:
            gone = self._changed(_Change(change.before, ""))
            if change.before in above_right:
                gone = max(gone, _EXPLAINED)
        if change.after:
            come = self._come(change.after)
            if change.after in above_left:
                come = max(come, _EXPLAINED)
        if not change.before or not change.after:
            return gone + come
        replaced = self._changed(change)
        return replaced if " " in change.before + change.after else max(replaced, gone + come)

    def _changed(self, change: _Change) -> float:
        counted, of = self._changes[change], self._left[change.before]
        return math.log2((counted + _STRENGTH * self._prior(change)) / (of + _STRENGTH))

    def _come(self, word: str) -> float:
        counted, of = self._changes[_Change("", word)], self._right[word]
        return math.log2((counted + _STRENGTH * self._goes(word)) / (of + _STRENGTH))

    def _prior(self, change: _Change) -> float:
        before, after = change
        if before == after:
            return _STAYS
        if not after:
            return self._goes(before)
        if len(after) == 1 and len(before) >= _SHORTEST and before.startswith(after):
            return _INITIAL
        likeness = _likeness(before, after)
        return next((prior for least, prior in _BY_SIMILARITY if likeness >= least), _OTHERWISE)

    def _goes(self, words: str) -> float:
        seldom = min(self._occurrences[word] for word in words.split())
        return min(_MOST_GOES, _GOES * (1 + seldom / _USUAL))


@lru_cache(maxsize=262_144)
def _changes(left: Label, right: Label) -> tuple[_Change, ...]:
    """Pair the words that differ: those alike in spelling first, then what is left over."""
    before = [word for word in left if word not in right]
    after = [word for word in right if word not in left]
    changes = []
    while before and after:
        likeness, one, other = max((_likeness(a, b), a, b) for a in before for b in after)
        if likeness < _BY_SIMILARITY[-1][0]:
            break
        changes.append(_Change(one, other))
        before.remove(one)
        after.remove(other)
    if before and after:
        return (*changes, _Change(" ".join(before), " ".join(after)))
    gone = [_Change(word, "") for word in before]
    return (*changes, *gone, *(_Change("", word) for word in after))


@lru_cache(maxsize=262_144)
def _likeness(one: str, other: str) -> float:
    if " " in one + other or min(len(one), len(other)) < _SHORTEST:
        return 0.0
    if one.isdigit() or other.isdigit():
        return 0.0
    return float(JaroWinkler.similarity(one, other))
