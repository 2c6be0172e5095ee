"""Proposes blocking rules from a sample: those that find most matches within a budget of pairs.

There are no labelled matches, so matches are simulated: good ones, in which nearly every column
agrees, and poor ones, in which hardly any does; values that disagree may share a prefix or suffix;
missing values never agree. Among the affordable rules, the greedy choice is the rule that finds
most simulated matches, then the rule that finds most of the remaining ones, until the budget is
spent or the gain is too small.
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
    value_codes,
)
from spark_jobs.linkage.open.rules import KeyPart, Rule, Take

__all__ = ["ProposedRule", "propose_rules"]

_PAIRS_PER_RECORD: Final = 30.0
_MAX_BUDGET_SHARE: Final = 0.4
_MAX_RULES: Final = 12
_SIMULATED_MATCHES: Final = 4_000
_QUALITY: Final = (0.2, 0.95)
_PARTIAL_AGREEMENT: Final = 0.4
_MIN_GAIN: Final = 0.001
_MAX_COLUMNS: Final = 10
_PREFIX_CHARACTERS: Final = 12


@dataclass(frozen=True, slots=True)
class ProposedRule:
    rule: Rule
    reason: str


@dataclass(frozen=True, slots=True)
class _SampledPart:
    """A part of a key: its values in the sample, and the simulated matches in which it agrees."""

    part: KeyPart
    values: NDArray[np.int64]
    agrees: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _Candidate:
    parts: tuple[_SampledPart, ...]
    pairs: float

    @property
    def finds(self) -> NDArray[np.bool_]:
        matches: NDArray[np.bool_] = np.logical_and.reduce([part.agrees for part in self.parts])
        return matches


def propose_rules(
    profiles: Sequence[Profile], repeated: set[str], sample: RecordSample
) -> tuple[ProposedRule, ...]:
    """Choose rules; the columns in `repeated` repeat others, so they are not combined."""
    budget = _PAIRS_PER_RECORD * sample.records
    affordable = [
        candidate
        for candidate in _candidates(profiles, repeated, sample)
        if candidate.pairs <= budget * _MAX_BUDGET_SHARE
    ]
    missed = np.ones(_SIMULATED_MATCHES, np.bool_)
    chosen: list[ProposedRule] = []
    while affordable and len(chosen) < _MAX_RULES:
        best = max(
            affordable,
            key=lambda candidate: (int((candidate.finds & missed).sum()), -candidate.pairs),
        )
        gain = float((best.finds & missed).mean())
        if gain < _MIN_GAIN:
            break
        missed &= ~best.finds
        budget -= best.pairs
        chosen.append(_propose_rule(best, gain))
        affordable = [
            candidate
            for candidate in affordable
            if candidate is not best and candidate.pairs <= budget
        ]
    return tuple(chosen)


def _propose_rule(best: _Candidate, gain: float) -> ProposedRule:
    rule = Rule(tuple(part.part for part in best.parts))
    reason = (
        f"Records with equal {rule.name} are compared: about {best.pairs:,.0f} pairs, "
        f"and {gain:.1%} of matches with usual errors that no rule before would find."
    )
    return ProposedRule(rule, reason)


def _candidates(
    profiles: Sequence[Profile], repeated: set[str], sample: RecordSample
) -> Iterator[_Candidate]:
    random = np.random.default_rng(0)
    rare = sorted(profiles, key=lambda one: one.chance)[:_MAX_COLUMNS]
    quality = random.uniform(*_QUALITY, _SIMULATED_MATCHES)
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
    chance = agreement_by_chance([part.values for part in parts])
    return _Candidate(parts, chance * sample.pairs)


def _parts(
    profile: Profile,
    sample: RecordSample,
    quality: NDArray[np.float64],
    random: np.random.Generator,
) -> Iterator[_SampledPart]:
    values = sample.columns[profile.name]
    # A key needs a value in both records.
    present = np.logical_and.reduce(random.random((2, _SIMULATED_MATCHES)) >= profile.nulls)
    agrees = (random.random(_SIMULATED_MATCHES) < quality) & present
    if profile.value_kind is not ValueKind.TEXT:
        yield _SampledPart(KeyPart(column=profile.name), value_codes(values), agrees)
    for take, length in _takes(profile.value_kind):
        partly_agrees = agrees | (
            (random.random(_SIMULATED_MATCHES) < _PARTIAL_AGREEMENT) & present
        )
        part = KeyPart(column=profile.name, take=take, length=length)
        yield _SampledPart(part, value_codes(part_of(part, values)), partly_agrees)


def _takes(value_kind: ValueKind) -> tuple[tuple[Take, int], ...]:
    match value_kind:
        case ValueKind.DATE:
            return ((Take.YEAR, 0), (Take.MONTH_DAY, 0))
        case ValueKind.NAME:
            return ((Take.PREFIX, 4), (Take.SUFFIX, 4))
        case ValueKind.TEXT:
            return (
                (Take.PREFIX, _PREFIX_CHARACTERS),
                (Take.SUFFIX, _PREFIX_CHARACTERS),
                (Take.WORD, 1),
                (Take.WORD, -1),
            )
        case ValueKind.CODE:
            return ((Take.PREFIX, 4),)
        case _:
            return ()
