"""Evidence of names: log2 of how much more probable one is as a form of the other than by chance.

In bits, evidence from different sources adds up.
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

_LETTER_BITS: Final = 3.5
"""Bits of an equal letter; in a word that many names have, down to two fifths of it."""
_FREQUENCY_DISCOUNT: Final = 0.6
_TRUNCATION_COST: Final = 2.0
"""Cost in bits of a truncated word."""
_VOWEL_COST: Final = 0.7
_CONSONANT_COST: Final = 5.0
"""Cost in bits of a consonant omitted inside a word."""
_OMITTED_WORD_COST: Final = 3.0
"""Cost in bits of an omitted word: one in eight is omitted."""
_UNEXPLAINED_COST: Final = 6.0
"""Cost in bits of a letter that no word explains."""
_SPLIT_COST: Final = 3.0
"""Cost in bits if words of both names do not start at the same letter."""
_MIN_BITS: Final = -6.0
_MIN_EXPLAINED: Final = 0.75
"""Minimum share of an abbreviation's letters that occur in the name, in order."""
_MIN_SIMILARITY: Final = 0.88
"""Minimum Jaro-Winkler similarity of spelling variants."""
_MIN_PREFIX_SHARE: Final = 0.95
"""Minimum share of the names with a first word that counts as their table's name."""
_MIN_WORD_LENGTH: Final = 4
"""Minimum letters of words whose spelling is compared."""
_MAX_LETTERS: Final = 64
"""Maximum letters of a name that are compared."""
_VOWELS: Final = frozenset("aeiouyäöüáéíóúàèìòùâêîôû")


@dataclass(frozen=True)
class Name:
    """A name as words.

    Attributes:
        words: The words, without a common first word of all names of the schema.
    """

    text: str
    words: tuple[str, ...]

    @cached_property
    def letters(self) -> str:
        return "".join(self.words)[:_MAX_LETTERS]

    @cached_property
    def starts(self) -> frozenset[int]:
        """The starts of words in `letters`."""
        return frozenset(sum(map(len, self.words[:n])) for n in range(len(self.words)))


@dataclass(frozen=True, slots=True)
class NameEvidence:
    """The evidence of two names.

    Attributes:
        bits: The evidence for one meaning; negative: against it.
        reason: The reason as text; empty without evidence.
    """

    bits: float
    reason: str = ""


class Vocabulary:
    """The frequencies of words in names, and equal words.

    Args:
        background: Relations of words; only `EQUAL` is used.
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
        """Return the bits of a word; the fewer names have it, the more bits."""
        return self._rarity[word]

    def share(self, word: str) -> float:
        """Return the share of names with a word, on the side with the higher share."""
        return max(shares.get(word, 0.0) for shares in self._shares)

    def are_equal(self, one: str, other: str) -> bool:
        return other in self._equal[one]


def names_of(texts: Sequence[str]) -> list[Name]:
    """Return the names of one schema, without a first word common to nearly all."""
    split = [words_of(text) for text in texts]
    firsts = Counter(words[0] for words in split if len(words) > 1)
    min_count = max(3.0, _MIN_PREFIX_SHARE * len(texts))
    return [
        Name(text, words[1:] if len(words) > 1 and firsts[words[0]] >= min_count else words)
        for text, words in zip(texts, split, strict=True)
    ]


def name_evidence(left: Name, right: Name, vocabulary: Vocabulary) -> NameEvidence:
    """Compare two names by the form that gives the most evidence."""
    if not left.words or not right.words:
        return NameEvidence(0.0)
    forms = [
        NameEvidence(_abbreviation_bits(left, right, vocabulary), _reason(left, right)),
        NameEvidence(_abbreviation_bits(right, left, vocabulary), _reason(right, left)),
        NameEvidence(_similarity_bits(left, right, vocabulary), "the names have similar words"),
    ]
    best = max(forms, key=lambda evidence: evidence.bits)
    return best if best.bits > 0 else NameEvidence(max(best.bits, _MIN_BITS))


def _reason(full: Name, short: Name) -> str:
    if full.words == short.words:
        return "the names are equal"
    return f"“{short.text}” is short for “{full.text}”"


def _similarity_bits(left: Name, right: Name, vocabulary: Vocabulary) -> float:
    """Return the bits of words that are equal or spelled alike, less unmatched words."""
    unmatched = list(right.words)
    bits = 0.0
    for word in left.words:
        best, at = max(
            ((_similarity(word, other, vocabulary), -n) for n, other in enumerate(unmatched)),
            default=(0.0, 0),
        )
        if best >= _MIN_SIMILARITY:
            bits += best**4 * (2.0 + vocabulary.rarity(word))
            unmatched.pop(-at)
        else:
            bits -= _OMITTED_WORD_COST
    return bits - _OMITTED_WORD_COST * len(unmatched)


def _similarity(one: str, other: str, vocabulary: Vocabulary) -> float:
    return 1.0 if vocabulary.are_equal(one, other) else word_similarity(one, other)


@lru_cache(maxsize=65_536)
def word_similarity(one: str, other: str) -> float:
    """Return the spelling similarity of two words, from 0 to 1; 0 or 1 for numbers, short words."""
    if one == other:
        return 1.0
    if min(len(one), len(other)) < _MIN_WORD_LENGTH or any(map(str.isdigit, one + other)):
        return 0.0
    return float(JaroWinkler.similarity(one, other))


def _abbreviation_bits(full: Name, short: Name, vocabulary: Vocabulary) -> float:
    """Explain each letter of `short` by a letter of `full`, in order; return the best bits.

    Words can be omitted, truncated, and lose letters, mainly vowels. All prefixes of `short` are
    explained at once: `best[n]` are the bits of its first n letters by the words so far.
    """
    letters = short.letters
    if LCSseq.similarity(letters, full.letters) < _MIN_EXPLAINED * len(letters):
        return _MIN_BITS
    best = [-_UNEXPLAINED_COST * n for n in range(len(letters) + 1)]
    for word in full.words:
        gain = _LETTER_BITS * (1 - _FREQUENCY_DISCOUNT * vocabulary.share(word))
        best = _with_word(best, word, short, gain)
    return best[-1]


def _with_word(best: Sequence[float], word: str, short: Name, gain: float) -> list[float]:
    letters, cuts = short.letters, short.starts
    split = _SPLIT_COST if len(cuts) > 1 else 0.0
    following = [bits - _OMITTED_WORD_COST for bits in best]
    within = [bits - (0.0 if n in cuts else split) for n, bits in enumerate(best)]
    for position, letter in enumerate(word):
        omission = _VOWEL_COST if letter in _VOWELS else _CONSONANT_COST
        next_within = [bits - omission for bits in within]
        cut = 0.0 if position == len(word) - 1 else _TRUNCATION_COST
        for n, other in enumerate(letters):
            if other == letter:
                bits = within[n] + gain - (_SPLIT_COST if position and n in cuts else 0.0)
                next_within[n + 1] = max(next_within[n + 1], bits)
                following[n + 1] = max(following[n + 1], next_within[n + 1] - cut)
        within = next_within
    for n in range(1, len(following)):
        following[n] = max(following[n], within[n], following[n - 1] - _UNEXPLAINED_COST)
    return following


def _shares(names: Sequence[Name]) -> dict[str, float]:
    counts = Counter(word for name in names for word in set(name.words))
    return {word: count / len(names) for word, count in counts.items()}
