"""Comparisons proposed from what columns hold, each with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.linkage.open.profile import Profile, RecordSample, ValueKind, profile
from spark_jobs.linkage.open.propose_blocking import propose_rules
from spark_jobs.linkage.open.quantities import as_quantities
from spark_jobs.linkage.open.rules import Rule
from spark_jobs.linkage.open.spec import AgreementLevel, FieldComparison, LinkagePlan, WholeRecords
from spark_jobs.linkage.open.whole.matching import MOST_RECORDS
from spark_jobs.runner.port import InputUnfit

__all__ = ["PlanProposal", "propose"]

_EMPTY: Final = 0.95
_CONTAINED: Final = 0.9
_LOOKED_AT: Final = 500
_PARTS: Final = 2
_LONG_CODE: Final = 6
_SEVERAL_WORDS: Final = 1.3
_MOSTLY_TEXT: Final = 0.5
_MOST_COLUMNS: Final = 8
"""Whose text is that of a whole record."""

_EXACT: Final = AgreementLevel(exact=True)
_TYPOS: Final = (AgreementLevel(levenshtein=1), AgreementLevel(levenshtein=2))
_ALIKE: Final = (AgreementLevel(jaro_winkler=0.92), AgreementLevel(jaro_winkler=0.8))
_HALF: Final = AgreementLevel(jaccard=0.5)
_WORDS: Final = (
    AgreementLevel(jaccard=0.8),
    AgreementLevel(jaro_winkler=0.95),
    _HALF,
    AgreementLevel(jaro_winkler=0.85),
    AgreementLevel(jaccard=0.25),
)

_WHY: Final[Mapping[ValueKind, str]] = {
    ValueKind.DATE: "a wrong digit or two, or a day within a year, differs little from the date",
    ValueKind.YEAR: "the year before or after differs little from the year",
    ValueKind.NUMBER: "equal numbers agree, and near ones somewhat",
    ValueKind.CODE: "single wrong characters differ little from the code",
    ValueKind.CATEGORY: "there are few values, which are equal or not",
    ValueKind.NAME: "spellings are compared with weight on how they begin",
    ValueKind.TEXT: "words in common are counted, whatever their order",
}


@dataclass(frozen=True, slots=True)
class PlanProposal:
    """A configuration for unknown data, with reasons, and with the profiles of the columns."""

    rules: tuple[Rule, ...]
    comparisons: tuple[FieldComparison, ...]
    reasons: tuple[str, ...]
    profiles: tuple[Profile, ...]
    similarity: WholeRecords | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; ``spec`` holds the members to be edited and given to the next run."""
        return {
            "spec": self._plan().model_dump(mode="json", exclude_none=True),
            "reasons": list(self.reasons),
            "columns": [one.to_json() for one in self.profiles],
        }

    def _plan(self) -> LinkagePlan:
        return LinkagePlan(
            blocking=self.rules, comparisons=self.comparisons, similarity=self.similarity
        )


def propose(sample: RecordSample, *, only_fields: bool = False) -> PlanProposal:
    """Propose a configuration: fields, or whole records where texts or nothing else distinguish.

    Args:
        only_fields: Whether whole records are no choice.

    Raises:
        InputUnfit: No column distinguishes records.
    """
    profiles = profile(sample)
    possible = not only_fields and sample.records <= MOST_RECORDS
    if possible and (reason := _why_whole_records(profiles, sample)):
        return _whole_records(profiles, reason)
    try:
        return _fields(profiles, sample, need_rules=possible)
    except (InputUnfit, pa.ArrowException, ArithmeticError, ValueError) as error:
        if not (possible and profiles):
            raise
        return _whole_records(profiles, f"Fields do not distinguish records: {error}")


def _whole_records(profiles: tuple[Profile, ...], reason: str) -> PlanProposal:
    columns = _columns_of_text(profiles)
    shared = f"Whole records are compared, by what they share in {', '.join(columns)}: {reason}"
    return PlanProposal((), (), (shared,), profiles, WholeRecords(columns=columns))


def _why_whole_records(profiles: Sequence[Profile], sample: RecordSample) -> str | None:
    """Return why whole records serve better than fields, in a sentence; None: they do not.

    Within a table they would find pairs only, and things come more often than twice.
    """
    words = sum(map(_words, profiles))
    texts = [one for one in profiles if one.value_kind is ValueKind.TEXT]
    share = sum(map(_words, texts)) / max(words, 1.0)
    if sample.within or share <= _MOSTLY_TEXT:
        return None
    names = " and ".join(one.name for one in texts)
    return f"{share:.0%} of all words are in {names}, where any of them may be what distinguishes."


def _columns_of_text(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Return the columns that make the text of a record, in their order: those with most words."""
    fullest = sorted(profiles, key=lambda one: (-_words(one), one.name))[:_MOST_COLUMNS]
    return tuple(one.name for one in profiles if one in fullest)


def _words(one: Profile) -> float:
    """The mean number of words, where a missing value has none."""
    return one.words * (1.0 - one.nulls)


def _fields(
    profiles: tuple[Profile, ...], sample: RecordSample, *, need_rules: bool
) -> PlanProposal:
    reasons: list[str] = []
    useful = _useful(profiles, reasons)
    left_out = _repeated(useful, sample, reasons)
    chosen = [one for one in useful if one.name not in left_out]
    if not chosen:
        raise InputUnfit("No column has values by which records could be compared.")
    comparisons = tuple(_comparison(one, sample) for one in chosen)
    reasons += [_reason(one) for one in chosen]
    rules = propose_rules(useful, left_out, sample)
    if need_rules and not rules:
        raise InputUnfit("No rule has few enough pairs.")
    reasons += [rule.reason for rule in rules]
    return PlanProposal(tuple(rule.rule for rule in rules), comparisons, tuple(reasons), profiles)


def _useful(profiles: Sequence[Profile], reasons: list[str]) -> list[Profile]:
    """Leave out what is empty, always the same, or never the same."""
    some_repeat = any(0 < one.chance < 1 for one in profiles)
    useful = []
    for one in profiles:
        if one.nulls > _EMPTY:
            reasons.append(
                f"{one.name} is not compared: {one.nulls:.0%} of its values are missing."
            )
        elif one.distinct == 1:
            reasons.append(f"{one.name} is not compared: it has one value only.")
        elif one.chance == 0 and some_repeat:
            reasons.append(
                f"{one.name} is not compared: no value comes twice, so it names the row."
            )
        else:
            useful.append(one)
    return useful


def _repeated(useful: Sequence[Profile], sample: RecordSample, reasons: list[str]) -> set[str]:
    """Columns that repeat others: agreement on both must not count twice."""
    parts: dict[str, list[str]] = {one.name: [] for one in useful}
    words = [one.name for one in useful if one.value_kind in {ValueKind.NAME, ValueKind.TEXT}]
    for whole, part in permutations(words, 2):
        if _contains(sample.columns[whole], sample.columns[part]) > _CONTAINED:
            parts[whole].append(part)
    left_out: set[str] = set()
    for whole, inside in parts.items():
        if len(inside) >= _PARTS:
            left_out.add(whole)
            listed = " and ".join(inside)
            reasons.append(f"{whole} is not compared: it repeats {listed}, which are compared.")
    for whole, inside in parts.items():
        if whole not in left_out and len(inside) == 1 and inside[0] not in left_out:
            left_out.add(inside[0])
            reasons.append(f"{inside[0]} is not compared: {whole} contains it.")
    return left_out


def _contains(whole: pa.Array, part: pa.Array) -> float:
    """The share of records in which all words of one value are among those of the other."""
    both = pc.and_(whole.is_valid(), part.is_valid())
    if not pc.any(both).as_py():
        return 0.0
    wholes, inner = (
        values.filter(both).slice(0, _LOOKED_AT).to_pylist() for values in (whole, part)
    )
    inside = [{*b.split()} <= {*a.split()} for a, b in zip(wholes, inner, strict=True)]
    return sum(inside) / len(inside)


def _comparison(one: Profile, sample: RecordSample) -> FieldComparison:
    return FieldComparison(
        columns=(one.name,), levels=(_EXACT, *_levels(one, sample)), term_frequency=True
    )


def _levels(one: Profile, sample: RecordSample) -> tuple[AgreementLevel, ...]:
    half = (_HALF,) if one.words > _SEVERAL_WORDS else ()
    match one.value_kind:
        case ValueKind.DATE:
            return (*_TYPOS, AgreementLevel(days=366))
        case ValueKind.YEAR:
            return (AgreementLevel(number=1),)
        case ValueKind.NUMBER:
            return tuple(AgreementLevel(number=limit) for limit in _near(sample.raw[one.name]))
        case ValueKind.CODE:
            return _TYPOS if one.length >= _LONG_CODE else _TYPOS[:1]
        case ValueKind.CATEGORY:
            return half
        case ValueKind.NAME:
            return (*_ALIKE, *half)
        case ValueKind.TEXT:
            return _WORDS


def _near(raw: pa.Array) -> tuple[float, float]:
    """Hundredths and tenths of the spread."""
    numbers = as_quantities(raw).to_numpy(zero_copy_only=False)
    finite = numbers[np.isfinite(numbers)]
    spread = max(float(finite.std()) if len(finite) else 0.0, 1e-9)
    return spread / 100, spread / 10


def _reason(one: Profile) -> str:
    return (
        f"{one.name} is compared as {one.value_kind.value}: {_WHY[one.value_kind]}; "
        f"{one.nulls:.0%} missing, two records agree by chance with probability {one.chance:.2g}."
    )
