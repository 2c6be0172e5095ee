"""Labels of ontologies as sets of words, and which of them may denote one thing."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.matching.schemas.steps import Steps
from spark_jobs.matching.schemas.translations import Label
from spark_jobs.matching.schemas.words import words_of

__all__ = ["NEAREST", "Labels", "label_pairs"]

NEAREST: Final = 30
"""Labels of the right that are looked at for each of the left."""
_REPORTED: Final = 500
"""Labels of the left between two reports of progress."""
_LEAST: Final = 0.25
"""Weighted Dice similarity from which on labels are looked at."""
_NONE: Final = np.empty(0, dtype=np.int64)
_STEM: Final = 4
_OF_STEMS: Final = 0.5
_PIECES: Final = re.compile(r"[^\W\d_]+|\d+|.+")
_LEFT_OUT: Final = frozenset(("of", "the", "and", "a", "an", "in", "to", "or", "for", "s"))
_ROMAN: Final = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_ORDINALS: Final = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)
_NUMERALS: Final = {
    word: str(number) for numerals in (_ROMAN, _ORDINALS) for number, word in enumerate(numerals, 1)
}
_NO_PLURALS: Final = ("ss", "us", "is")
_SHORTEST: Final = 4


class Labels:
    """Turns texts into labels; knows the words of all texts, to find compounds written apart."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._known = {word for text in texts for word in _pieces(text)}

    def label(self, text: str) -> Label:
        words: list[str] = []
        for word in _pieces(text):
            if words and words[-1] + word in self._known:
                words[-1] += word
            else:
                words.append(word)
        return tuple(sorted(set(words)))


def _pieces(text: str) -> list[str]:
    pieces = [piece for word in words_of(text) for piece in _PIECES.findall(word)]
    singular = [_singular(piece) for piece in pieces if piece not in _LEFT_OUT]
    return [_NUMERALS.get(word, word) for word in singular]


def _singular(word: str) -> str:
    plural = len(word) >= _SHORTEST and word.endswith("s") and not word.endswith(_NO_PLURALS)
    return word[:-1] if plural else word


def label_pairs(
    left: Sequence[Label], right: Sequence[Label], steps: Steps
) -> Iterator[tuple[int, int]]:
    """Yield positions of labels that share words, or their beginnings, weighted by rarity.

    Each label of the left is a step.
    """
    features = [[_features(label) for label in side] for side in (left, right)]
    counts = Counter(feature for side in features for each in side for feature in each)
    total = len(left) + len(right)
    weights = {
        feature: math.log2(1 + total / count) * (_OF_STEMS if feature.endswith("…") else 1.0)
        for feature, count in counts.items()
    }
    postings = _postings(features[1])
    sizes = np.array([sum(map(weights.__getitem__, each)) for each in features[1]])
    for position, each in enumerate(steps.over(features[0], _REPORTED)):
        common = np.zeros(len(right))
        for feature in each:
            common[postings.get(feature, _NONE)] += weights[feature]
        dice = 2 * common / (sum(map(weights.__getitem__, each)) + sizes)
        yield from ((position, int(other)) for other in _nearest(dice))


def _features(label: Label) -> tuple[str, ...]:
    """Words, and beginnings of words, which end with an ellipsis."""
    return (*label, *sorted({f"{word[:_STEM]}…" for word in label if len(word) >= _STEM}))


def _postings(features: Sequence[tuple[str, ...]]) -> dict[str, NDArray[np.int64]]:
    """The positions of the labels that have a feature."""
    positions: dict[str, list[int]] = {}
    for position, each in enumerate(features):
        for feature in each:
            positions.setdefault(feature, []).append(position)
    return {feature: np.array(found) for feature, found in positions.items()}


def _nearest(dice: NDArray[np.float64]) -> NDArray[np.int64]:
    likely = np.flatnonzero(dice > _LEAST)
    return likely[np.lexsort((likely, -dice[likely]))[:NEAREST]]
