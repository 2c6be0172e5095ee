"""Splink settings for a specification, with generated names: user input never becomes SQL.

Comparison k reads the column ``c<k>``, for numbers ``n<k>``, for words ``w<k>``; rule r uses the
key ``k<r>``. Limits are strictly parsed numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

from splink import SettingsCreator
from splink import comparison_level_library as levels
from splink.blocking_rule_library import CustomRule
from splink.comparison_library import CustomComparison

from spark_jobs.linkage.open.spec import AgreementLevel, FieldComparison, Measure, OpenSpec

__all__ = ["ROW", "level_of", "settings", "training_rule"]

ROW: Final = "unique_id"
"""The column of a record's row id."""

_BONUS_THRESHOLD: Final = 0.82
"""The maximum of a similarity of 0.7 with the bonus."""


def settings(spec: OpenSpec) -> SettingsCreator:
    return SettingsCreator(
        link_type=_link_type(spec),
        comparisons=[_comparison(k, comparison) for k, comparison in enumerate(spec.comparisons)],
        blocking_rules_to_generate_predictions=[
            CustomRule(_same_block(spec, rule)) for rule in range(len(spec.blocking))
        ],
        retain_matching_columns=True,  # they include levels
        retain_intermediate_calculation_columns=True,  # they include frequencies
    )


def training_rule(spec: OpenSpec, rule: int, decided: Sequence[int]) -> CustomRule:
    """Return a rule for Splink's training, without the comparisons that the rule decides.

    Splink omits comparisons whose columns the rule names; a blocking key hides its columns.
    """
    mentions = [f" AND (l.c{k} IS NULL OR l.c{k} IS NOT NULL)" for k in decided]
    return CustomRule(_same_block(spec, rule) + "".join(mentions))


def _link_type(spec: OpenSpec) -> Literal["link_only", "link_and_dedupe", "dedupe_only"]:
    if len(spec.inputs) == 1:
        return "dedupe_only"
    return "link_and_dedupe" if spec.within else "link_only"


def _same_block(spec: OpenSpec, rule: int) -> str:
    known = " AND NOT (l.known AND r.known)" if spec.known is not None else ""
    return f"l.k{rule} = r.k{rule}{known}"


def _comparison(k: int, comparison: FieldComparison) -> CustomComparison:
    agreement_levels = [level_of(k, level) for level in comparison.levels]
    if comparison.term_frequency:
        agreement_levels[0] = agreement_levels[0].configure(tf_adjustment_column=f"c{k}")
    return CustomComparison(
        output_column_name=f"c{k}",
        comparison_levels=[levels.NullLevel(f"c{k}"), *agreement_levels, levels.ElseLevel()],
    )


def level_of(k: int, level: AgreementLevel) -> Any:
    return _LEVELS[level.measure](k, level)


def _difference(k: int, level: AgreementLevel) -> Any:
    return levels.AbsoluteDifferenceLevel(f"n{k}", max(0.0, level.limit))


def _jaro_winkler(k: int, level: AgreementLevel) -> Any:
    """Compute the prefix bonus in SQL: DuckDB grants it only above a similarity of 0.7."""
    if level.limit > _BONUS_THRESHOLD:
        return levels.JaroWinklerLevel(f"c{k}", level.limit)
    left, right = f"c{k}_l", f"c{k}_r"
    jaro = f"jaro_similarity({left}, {right})"
    prefix_cases = " ".join(
        f"WHEN substr({left}, 1, {n + 1}) <> substr({right}, 1, {n + 1}) THEN {n}" for n in range(4)
    )
    bonus = f"0.1 * (CASE {prefix_cases} ELSE 4 END) * (1.0 - {jaro})"
    return levels.CustomLevel(f"{jaro} + {bonus} >= {level.limit!r}")


def _shared_words(k: int, level: AgreementLevel) -> Any:
    """Shared words over words in either; Splink's own measure compares characters."""
    both = f"len(list_intersect(w{k}_l, w{k}_r))"
    either = f"(len(w{k}_l) + len(w{k}_r) - {both})"
    return levels.CustomLevel(f"{both} / {either} >= {level.limit!r}")


_LEVELS: Final[Mapping[Measure, Callable[[int, AgreementLevel], Any]]] = {
    Measure.EXACT: lambda k, _: levels.ExactMatchLevel(f"c{k}"),
    Measure.LEVENSHTEIN: lambda k, level: levels.DamerauLevenshteinLevel(f"c{k}", int(level.limit)),
    Measure.JARO_WINKLER: _jaro_winkler,
    Measure.JACCARD: _shared_words,
    Measure.NUMBER: _difference,
    Measure.DAYS: _difference,
}
