"""Evidence of names: how much more probable one is as a form of the other than by chance.

Evidence is counted in bits, so that evidence of different origin adds up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from rapidfuzz.distance import JaroWinkler, LCSseq

from spark_jobs.matching.schemas.background import Background
from spark_jobs.matching.schemas.words import words_of

__all__ = ["Name", "NameEvidence", "Vocabulary", "name_evidence", "names_of", "word_similarity"]

_LETTER: Final = 3.5
"""Bits of a letter that is equal; in a word that many names have, down to two fifths of it."""
_FREQUENT: Final = 0.6
_CUT: Final = 2.0
"""Bits that it costs to keep only the beginning of a word."""
_VOWEL: Final = 0.7
_CONSONANT: Final = 5.0
"""Bits that a letter costs that is left out inside a word."""
_SKIPPED: Final = 3.0
"""Bits that a word costs that is left out: one in eight is."""
_UNEXPLAINED: Final = 6.0
"""Bits that a letter costs which comes from no word."""
_SPLIT: Final = 3.0
"""Bits that it costs if words of both names do not begin at the same letter."""
_LEAST: Final = -6.0
_EXPLAINED: Final = 0.75
"""Share of an abbreviation's letters that must occur in the name, in their order."""
_SIMILAR: Final = 0.88
"""Jaro-Winkler similarity from which on words are spellings of each other."""
_PREFIX: Final = 0.95
"""Share of the names that a first word must have, to be taken for that of their table."""
_SHORTEST: Final = 4
"""Letters of words whose spelling is compared."""
_LONGEST: Final = 64
"""Letters of a name that are looked at."""
_VOWELS: Final = frozenset("aeiouyäöüáéíóúàèìòùâêîôû")


@dataclass(frozen=True)
class Name:
    """A name as words.

    Attributes:
        words: Without the word that all names beside it begin with.
    """

    text: str
    words: tuple[str, ...]

    @cached_property
    def letters(self) -> str:
        return "".join(self.words)[:_LONGEST]

    @cached_property
    def starts(self) -> frozenset[int]:
        """Where a word begins in `letters`."""
        return frozenset(sum(map(len, self.words[:n])) for n in range(len(self.words)))


@dataclass(frozen=True, slots=True)
class NameEvidence:
    """What two names say.

    Attributes:
        bits: For one meaning; negative: against it.
        reason: In words; empty if the names say nothing.
    """

    bits: float
    reason: str = ""


class Vocabulary:
    """What is known of words: how many names have them, and which are equal.

    Args:
        background: Relations of words; `EQUAL` is used here.
    """

    def __init__(
        self, left: Sequence[Name], right: Sequence[Name], background: Background | None = None
    ) -> None:
        self._shares = [_shares(names) for names in (left, right)]
        counts = Counter(word for name in (*left, *right) for word in set(name.words))
        total = len(left) + len(right)
        self._rarity = {word: math.log2(1 + total / count) for word, count in counts.items()}
        self._equal = {
            word: frozenset(background.equal_terms(word)) if background else frozenset()
            for word in counts
        }

    def rarity(self, word: str) -> float:
        """Return bits: a word is worth more, the fewer names have it."""
        return self._rarity[word]

    def share(self, word: str) -> float:
        """Return the share of names that have a word, on the side where more have it."""
        return max(shares.get(word, 0.0) for shares in self._shares)

    def are_equal(self, one: str, other: str) -> bool:
        return other in self._equal[one]


def names_of(texts: Sequence[str]) -> list[Name]:
    """Return the names of one schema, without a first word that nearly all have."""
    split = [words_of(text) for text in texts]
    firsts = Counter(words[0] for words in split if len(words) > 1)
    least = max(3.0, _PREFIX * len(texts))
    return [
        Name(text, words[1:] if len(words) > 1 and firsts[words[0]] >= least else words)
        for text, words in zip(texts, split, strict=True)
    ]


def name_evidence(left: Name, right: Name, vocabulary: Vocabulary) -> NameEvidence:
    """Compare two names by the form that explains most."""
    if not left.words or not right.words:
        return NameEvidence(0.0)
    found = [
        NameEvidence(_abbreviated(left, right, vocabulary), _reason(left, right)),
        NameEvidence(_abbreviated(right, left, vocabulary), _reason(right, left)),
        NameEvidence(_alike(left, right, vocabulary), "the names have similar words"),
    ]
    best = max(found, key=lambda each: each.bits)
    return best if best.bits > 0 else NameEvidence(max(best.bits, _LEAST))


def _reason(full: Name, short: Name) -> str:
    if full.words == short.words:
        return "the names are equal"
    return f"“{short.text}” is short for “{full.text}”"


def _alike(left: Name, right: Name, vocabulary: Vocabulary) -> float:
    """Words that are equal or spelled alike, less those without a counterpart."""
    rest = list(right.words)
    bits = 0.0
    for word in left.words:
        best, at = max(
            ((_likeness(word, other, vocabulary), -n) for n, other in enumerate(rest)),
            default=(0.0, 0),
        )
        if best >= _SIMILAR:
            bits += best**4 * (2.0 + vocabulary.rarity(word))
            rest.pop(-at)
        else:
            bits -= _SKIPPED
    return bits - _SKIPPED * len(rest)


def _likeness(one: str, other: str, vocabulary: Vocabulary) -> float:
    return 1.0 if vocabulary.are_equal(one, other) else word_similarity(one, other)


@lru_cache(maxsize=65_536)
def word_similarity(one: str, other: str) -> float:
    """Return how alike two words are spelled, from 0 to 1; numbers and short words are or not."""
    if one == other:
        return 1.0
    if min(len(one), len(other)) < _SHORTEST or any(map(str.isdigit, one + other)):
        return 0.0
    return float(JaroWinkler.similarity(one, other))


def _abbreviated(full: Name, short: Name, vocabulary: Vocabulary) -> float:
    """Explain each letter of `short` by one of `full`, in their order; the best explanation counts.

    Words may be left out, cut, and lose letters, above all vowels. All prefixes of `short` are
    explained at once: `best[n]` are the bits of its first n letters by the words so far.
    """
    letters = short.letters
    if LCSseq.similarity(letters, full.letters) < _EXPLAINED * len(letters):
        return _LEAST
    best = [-_UNEXPLAINED * n for n in range(len(letters) + 1)]
    for word in full.words:
        gain = _LETTER * (1 - _FREQUENT * vocabulary.share(word))
        best = _with_word(best, word, short, gain)
    return best[-1]


def _with_word(best: Sequence[float], word: str, short: Name, gain: float) -> list[float]:
    letters, cuts = short.letters, short.starts
    split = _SPLIT if len(cuts) > 1 else 0.0
    following = [bits - _SKIPPED for bits in best]
    within = [bits - (0.0 if n in cuts else split) for n, bits in enumerate(best)]
    for position, letter in enumerate(word):
        dropped = _VOWEL if letter in _VOWELS else _CONSONANT
        reached = [bits - dropped for bits in within]
        cut = 0.0 if position == len(word) - 1 else _CUT
        for n, other in enumerate(letters):
            if other == letter:
                bits = within[n] + gain - (_SPLIT if position and n in cuts else 0.0)
                reached[n + 1] = max(reached[n + 1], bits)
                following[n + 1] = max(following[n + 1], reached[n + 1] - cut)
        within = reached
    for n in range(1, len(following)):
        following[n] = max(following[n], within[n], following[n - 1] - _UNEXPLAINED)
    return following


def _shares(names: Sequence[Name]) -> dict[str, float]:
    counts = Counter(word for name in names for word in set(name.words))
    return {word: count / len(names) for word, count in counts.items()}
