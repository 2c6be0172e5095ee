"""Proposes comparisons from the contents of columns, each with a reason."""

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
from spark_jobs.linkage.open.whole.matching import MAX_RECORDS
from spark_jobs.runner.port import InputUnfit

__all__ = ["PlanProposal", "propose"]

_MAX_NULLS: Final = 0.95
_MIN_CONTAINED: Final = 0.9
_SAMPLE_VALUES: Final = 500
_MIN_PARTS: Final = 2
_MIN_LONG_CODE: Final = 6
_MIN_MEAN_WORDS: Final = 1.3
_MIN_TEXT_SHARE: Final = 0.5
_MAX_COLUMNS: Final = 8
"""Maximum columns that form the text of a whole record."""

_EXACT: Final = AgreementLevel(exact=True)
_TYPOS: Final = (AgreementLevel(levenshtein=1), AgreementLevel(levenshtein=2))
_SIMILAR: Final = (AgreementLevel(jaro_winkler=0.92), AgreementLevel(jaro_winkler=0.8))
_HALF_SHARED: Final = AgreementLevel(jaccard=0.5)
_WORDS: Final = (
    AgreementLevel(jaccard=0.8),
    AgreementLevel(jaro_winkler=0.95),
    _HALF_SHARED,
    AgreementLevel(jaro_winkler=0.85),
    AgreementLevel(jaccard=0.25),
)

_REASONS: Final[Mapping[ValueKind, str]] = {
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
    """A configuration for unknown data, with reasons and the profiles of the columns."""

    rules: tuple[Rule, ...]
    comparisons: tuple[FieldComparison, ...]
    reasons: tuple[str, ...]
    profiles: tuple[Profile, ...]
    similarity: WholeRecords | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON; ``spec`` has the members to edit and pass to the next run."""
        return {
            "spec": self._plan().model_dump(mode="json", exclude_none=True),
            "reasons": list(self.reasons),
            "columns": [column.to_json() for column in self.profiles],
        }

    def _plan(self) -> LinkagePlan:
        return LinkagePlan(
            blocking=self.rules, comparisons=self.comparisons, similarity=self.similarity
        )


def propose(sample: RecordSample, *, only_fields: bool = False) -> PlanProposal:
    """Propose a configuration: fields, or whole records if texts or no fields distinguish records.

    Args:
        only_fields: Whether to exclude whole records.

    Raises:
        InputUnfit: No column distinguishes records.
    """
    profiles = profile(sample)
    possible = not only_fields and sample.records <= MAX_RECORDS
    if possible and (reason := _why_whole_records(profiles, sample)):
        return _whole_records(profiles, reason)
    try:
        return _fields(profiles, sample, need_rules=possible)
    except (InputUnfit, pa.ArrowException, ArithmeticError, ValueError) as error:
        if not (possible and profiles):
            raise
        return _whole_records(profiles, f"Fields do not distinguish records: {error}")


def _whole_records(profiles: tuple[Profile, ...], reason: str) -> PlanProposal:
    columns = _text_columns(profiles)
    shared = f"Whole records are compared, by what they share in {', '.join(columns)}: {reason}"
    return PlanProposal((), (), (shared,), profiles, WholeRecords(columns=columns))


def _why_whole_records(profiles: Sequence[Profile], sample: RecordSample) -> str | None:
    """Return why whole records serve better than fields, in a sentence; None: they do not.

    Within a table they would find pairs only, but things can occur more than twice.
    """
    words = sum(map(_words, profiles))
    texts = [column for column in profiles if column.value_kind is ValueKind.TEXT]
    share = sum(map(_words, texts)) / max(words, 1.0)
    if sample.within or share <= _MIN_TEXT_SHARE:
        return None
    names = " and ".join(column.name for column in texts)
    return f"{share:.0%} of all words are in {names}, where any of them may be what distinguishes."


def _text_columns(profiles: Sequence[Profile]) -> tuple[str, ...]:
    """Return the columns with the most words, in their order; they form the text of a record."""
    top = sorted(profiles, key=lambda column: (-_words(column), column.name))[:_MAX_COLUMNS]
    return tuple(column.name for column in profiles if column in top)


def _words(column: Profile) -> float:
    """Return the mean number of words; a missing value has none."""
    return column.words * (1.0 - column.nulls)


def _fields(
    profiles: tuple[Profile, ...], sample: RecordSample, *, need_rules: bool
) -> PlanProposal:
    reasons: list[str] = []
    useful = _useful_columns(profiles, reasons)
    excluded = _repeated_columns(useful, sample, reasons)
    compared = [column for column in useful if column.name not in excluded]
    if not compared:
        raise InputUnfit("No column has values by which records could be compared.")
    comparisons = tuple(_comparison(column, sample) for column in compared)
    reasons += [_reason(column) for column in compared]
    rules = propose_rules(useful, excluded, sample)
    if need_rules and not rules:
        raise InputUnfit("No rule has few enough pairs.")
    reasons += [rule.reason for rule in rules]
    return PlanProposal(tuple(rule.rule for rule in rules), comparisons, tuple(reasons), profiles)


def _useful_columns(profiles: Sequence[Profile], reasons: list[str]) -> list[Profile]:
    """Drop columns that are empty, constant or unique."""
    some_repeat = any(0 < column.chance < 1 for column in profiles)
    useful = []
    for column in profiles:
        if column.nulls > _MAX_NULLS:
            reasons.append(
                f"{column.name} is not compared: {column.nulls:.0%} of its values are missing."
            )
        elif column.distinct == 1:
            reasons.append(f"{column.name} is not compared: it has one value only.")
        elif column.chance == 0 and some_repeat:
            reasons.append(
                f"{column.name} is not compared: no value comes twice, so it names the row."
            )
        else:
            useful.append(column)
    return useful


def _repeated_columns(
    useful: Sequence[Profile], sample: RecordSample, reasons: list[str]
) -> set[str]:
    """Return columns that repeat other columns: agreement on both must not count twice."""
    parts: dict[str, list[str]] = {column.name: [] for column in useful}
    words = [
        column.name for column in useful if column.value_kind in {ValueKind.NAME, ValueKind.TEXT}
    ]
    for whole, part in permutations(words, 2):
        if _contains(sample.columns[whole], sample.columns[part]) > _MIN_CONTAINED:
            parts[whole].append(part)
    excluded: set[str] = set()
    for whole, inside in parts.items():
        if len(inside) >= _MIN_PARTS:
            excluded.add(whole)
            listed = " and ".join(inside)
            reasons.append(f"{whole} is not compared: it repeats {listed}, which are compared.")
    for whole, inside in parts.items():
        if whole not in excluded and len(inside) == 1 and inside[0] not in excluded:
            excluded.add(inside[0])
            reasons.append(f"{inside[0]} is not compared: {whole} contains it.")
    return excluded


def _contains(whole: pa.Array, part: pa.Array) -> float:
    """Return the share of records in which `whole` has all words of `part`."""
    both = pc.and_(whole.is_valid(), part.is_valid())
    if not pc.any(both).as_py():
        return 0.0
    wholes, inner = (
        values.filter(both).slice(0, _SAMPLE_VALUES).to_pylist() for values in (whole, part)
    )
    inside = [{*b.split()} <= {*a.split()} for a, b in zip(wholes, inner, strict=True)]
    return sum(inside) / len(inside)


def _comparison(column: Profile, sample: RecordSample) -> FieldComparison:
    return FieldComparison(
        columns=(column.name,), levels=(_EXACT, *_levels(column, sample)), term_frequency=True
    )


def _levels(column: Profile, sample: RecordSample) -> tuple[AgreementLevel, ...]:
    half = (_HALF_SHARED,) if column.words > _MIN_MEAN_WORDS else ()
    match column.value_kind:
        case ValueKind.DATE:
            return (*_TYPOS, AgreementLevel(days=366))
        case ValueKind.YEAR:
            return (AgreementLevel(number=1),)
        case ValueKind.NUMBER:
            return tuple(AgreementLevel(number=limit) for limit in _near(sample.raw[column.name]))
        case ValueKind.CODE:
            return _TYPOS if column.length >= _MIN_LONG_CODE else _TYPOS[:1]
        case ValueKind.CATEGORY:
            return half
        case ValueKind.NAME:
            return (*_SIMILAR, *half)
        case ValueKind.TEXT:
            return _WORDS


def _near(raw: pa.Array) -> tuple[float, float]:
    """Return a hundredth and a tenth of the standard deviation."""
    numbers = as_quantities(raw).to_numpy(zero_copy_only=False)
    finite = numbers[np.isfinite(numbers)]
    spread = max(float(finite.std()) if len(finite) else 0.0, 1e-9)
    return spread / 100, spread / 10


def _reason(column: Profile) -> str:
    return (
        f"{column.name} is compared as {column.value_kind.value}: {_REASONS[column.value_kind]}; "
        f"{column.nulls:.0%} missing, two records agree by chance with probability "
        f"{column.chance:.2g}."
    )
