"""Blocking rules proposed from a sample: those that find most matches within a budget of pairs.

There are no labelled matches. So matches are imagined: good ones, in which nearly every column
agrees, and poor ones, in which hardly any does; what does not agree may still begin or end alike;
and where a value is missing nothing agrees. Of the rules that are cheap enough, the one that finds
most imagined matches is chosen, then the one that finds most of the rest, until the budget is used
up or nothing is gained.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

from spark_jobs.linkage.open.key_parts import part_of
from spark_jobs.linkage.open.profile import (
    Profile,
    RecordSample,
    ValueKind,
    agreement_by_chance,
    numbered,
)
from spark_jobs.linkage.open.rules import KeyPart, Rule, Take

__all__ = ["ProposedRule", "propose_rules"]

_PAIRS_PER_RECORD: Final = 30.0
_SHARE_OF_BUDGET: Final = 0.4
_MOST_RULES: Final = 12
_IMAGINED: Final = 4_000
_QUALITY: Final = (0.2, 0.95)
_NEARLY: Final = 0.4
_GAIN: Final = 0.001
_SINGLE_COLUMNS: Final = 10
_PREFIX: Final = 12


@dataclass(frozen=True, slots=True)
class ProposedRule:
    rule: Rule
    reason: str


@dataclass(frozen=True, slots=True)
class _SampledPart:
    """A part of a key, with its values in the sample and in which imagined matches it agrees."""

    part: KeyPart
    values: NDArray[np.int64]
    agrees: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Candidate:
    parts: tuple[_SampledPart, ...]
    pairs: float

    @property
    def finds(self) -> NDArray[np.bool_]:
        matches: NDArray[np.bool_] = np.logical_and.reduce([one.agrees for one in self.parts])
        return matches


def propose_rules(
    profiles: Sequence[Profile], repeated: set[str], sample: RecordSample
) -> tuple[ProposedRule, ...]:
    """Choose rules; the columns in `repeated` are not combined: they repeat others."""
    budget = _PAIRS_PER_RECORD * sample.records
    affordable = [
        one
        for one in _candidates(profiles, repeated, sample)
        if one.pairs <= budget * _SHARE_OF_BUDGET
    ]
    missed = np.ones(_IMAGINED, np.bool_)
    chosen: list[ProposedRule] = []
    while affordable and len(chosen) < _MOST_RULES:
        best = max(affordable, key=lambda one: (int((one.finds & missed).sum()), -one.pairs))
        gain = float((best.finds & missed).mean())
        if gain < _GAIN:
            break
        missed &= ~best.finds
        budget -= best.pairs
        chosen.append(_proposed(best, gain))
        affordable = [one for one in affordable if one is not best and one.pairs <= budget]
    return tuple(chosen)


def _proposed(best: _Candidate, gain: float) -> ProposedRule:
    rule = Rule(tuple(one.part for one in best.parts))
    reason = (
        f"Records with equal {rule.name} are compared: about {best.pairs:,.0f} pairs, "
        f"and {gain:.1%} of matches with usual errors that no rule before would find."
    )
    return ProposedRule(rule, reason)


def _candidates(
    profiles: Sequence[Profile], repeated: set[str], sample: RecordSample
) -> Iterator[_Candidate]:
    random = np.random.default_rng(0)
    rare = sorted(profiles, key=lambda one: one.chance)[:_SINGLE_COLUMNS]
    quality = random.uniform(*_QUALITY, _IMAGINED)
    parts = [list(_parts(one, sample, quality, random)) for one in rare]
    for column in parts:
        for one in column:
            yield _candidate((one,), sample)
    independent = [
        column for one, column in zip(rare, parts, strict=True) if one.name not in repeated
    ]
    for left, right in combinations(independent, 2):
        for a in left:
            for b in right:
                yield _candidate((a, b), sample)


def _candidate(parts: tuple[_SampledPart, ...], sample: RecordSample) -> _Candidate:
    chance = agreement_by_chance([one.values for one in parts])
    return _Candidate(parts, chance * sample.pairs)


def _parts(
    one: Profile, sample: RecordSample, quality: NDArray[np.float64], random: np.random.Generator
) -> Iterator[_SampledPart]:
    values = sample.columns[one.name]
    # A key needs a value in both records.
    present = np.logical_and.reduce(random.random((2, _IMAGINED)) >= one.nulls)
    agrees = (random.random(_IMAGINED) < quality) & present
    if one.value_kind is not ValueKind.TEXT:
        yield _SampledPart(KeyPart(column=one.name), numbered(values), agrees)
    for take, length in _takes(one.value_kind):
        nearly = agrees | ((random.random(_IMAGINED) < _NEARLY) & present)
        part = KeyPart(column=one.name, take=take, length=length)
        yield _SampledPart(part, numbered(part_of(part, values)), nearly)


def _takes(value_kind: ValueKind) -> tuple[tuple[Take, int], ...]:
    match value_kind:
        case ValueKind.DATE:
            return ((Take.YEAR, 0), (Take.MONTH_DAY, 0))
        case ValueKind.NAME:
            return ((Take.PREFIX, 4), (Take.SUFFIX, 4))
        case ValueKind.TEXT:
            return ((Take.PREFIX, _PREFIX), (Take.SUFFIX, _PREFIX), (Take.WORD, 1), (Take.WORD, -1))
        case ValueKind.CODE:
            return ((Take.PREFIX, 4),)
        case _:
            return ()
