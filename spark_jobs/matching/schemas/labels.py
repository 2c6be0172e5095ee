"""Labels of ontologies as sets of words, and candidate pairs of labels."""

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
"""Maximum labels of the right compared with each label of the left."""
_REPORT_INTERVAL: Final = 500
"""Labels of the left between two reports of progress."""
_MIN_DICE: Final = 0.25
"""Minimum weighted Dice similarity of compared labels."""
_NONE: Final = np.empty(0, dtype=np.int64)
_STEM_LENGTH: Final = 4
_STEM_WEIGHT: Final = 0.5
_PIECES: Final = re.compile(r"[^\W\d_]+|\d+|.+")
_STOP_WORDS: Final = frozenset(("of", "the", "and", "a", "an", "in", "to", "or", "for", "s"))
_ROMAN: Final = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
_ORDINALS: Final = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)
_NUMERALS: Final = {
    word: str(number) for numerals in (_ROMAN, _ORDINALS) for number, word in enumerate(numerals, 1)
}
_SINGULAR_ENDINGS: Final = ("ss", "us", "is")
_MIN_PLURAL_LENGTH: Final = 4


class Labels:
    """Converts texts to labels; uses the words of all texts to join compounds written apart."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._words = {word for text in texts for word in _pieces(text)}

    def label(self, text: str) -> Label:
        words: list[str] = []
        for word in _pieces(text):
            if words and words[-1] + word in self._words:
                words[-1] += word
            else:
                words.append(word)
        return tuple(sorted(set(words)))


def _pieces(text: str) -> list[str]:
    pieces = [piece for word in words_of(text) for piece in _PIECES.findall(word)]
    singular = [_singular(piece) for piece in pieces if piece not in _STOP_WORDS]
    return [_NUMERALS.get(word, word) for word in singular]


def _singular(word: str) -> str:
    plural = (
        len(word) >= _MIN_PLURAL_LENGTH
        and word.endswith("s")
        and not word.endswith(_SINGULAR_ENDINGS)
    )
    return word[:-1] if plural else word


def label_pairs(
    left: Sequence[Label], right: Sequence[Label], steps: Steps
) -> Iterator[tuple[int, int]]:
    """Yield positions of labels that share words, or prefixes of words, weighted by rarity.

    Each label of the left is a step.
    """
    features = [[_features(label) for label in side] for side in (left, right)]
    counts = Counter(feature for side in features for label in side for feature in label)
    total = len(left) + len(right)
    weights = {
        feature: math.log2(1 + total / count) * (_STEM_WEIGHT if feature.endswith("…") else 1.0)
        for feature, count in counts.items()
    }
    postings = _postings(features[1])
    sizes = np.array([sum(map(weights.__getitem__, label)) for label in features[1]])
    for position, label in enumerate(steps.over(features[0], _REPORT_INTERVAL)):
        common = np.zeros(len(right))
        for feature in label:
            common[postings.get(feature, _NONE)] += weights[feature]
        dice = 2 * common / (sum(map(weights.__getitem__, label)) + sizes)
        yield from ((position, int(other)) for other in _nearest(dice))


def _features(label: Label) -> tuple[str, ...]:
    """Return words, and prefixes of words marked by an ellipsis."""
    return (
        *label,
        *sorted({f"{word[:_STEM_LENGTH]}…" for word in label if len(word) >= _STEM_LENGTH}),
    )


def _postings(features: Sequence[tuple[str, ...]]) -> dict[str, NDArray[np.int64]]:
    """Return the positions of the labels with each feature."""
    positions: dict[str, list[int]] = {}
    for position, label in enumerate(features):
        for feature in label:
            positions.setdefault(feature, []).append(position)
    return {feature: np.array(numbers) for feature, numbers in positions.items()}


def _nearest(dice: NDArray[np.float64]) -> NDArray[np.int64]:
    likely = np.flatnonzero(dice > _MIN_DICE)
    return likely[np.lexsort((likely, -dice[likely]))[:NEAREST]]
