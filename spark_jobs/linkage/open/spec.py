"""What a run of open linkage is told: inputs, blocking rules, comparisons, thresholds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spark_jobs.runner.port import Input

__all__ = [
    "Clustering",
    "Comparison",
    "Engine",
    "KeyPart",
    "Level",
    "Limits",
    "Measure",
    "OpenSpec",
    "Result",
    "Rule",
    "Take",
]


class Measure(StrEnum):
    """How two values are compared; what a level's limit means."""

    EXACT = "exact"
    LEVENSHTEIN = "levenshtein"
    JARO_WINKLER = "jaro_winkler"
    JACCARD = "jaccard"
    NUMBER = "number"
    DAYS = "days"

    @property
    def is_distance(self) -> bool:
        """Whether little of it is alike, so that a limit is the most instead of the least."""
        return self in {Measure.LEVENSHTEIN, Measure.NUMBER, Measure.DAYS}

    @property
    def is_numeric(self) -> bool:
        """Whether it compares numbers."""
        return self in {Measure.NUMBER, Measure.DAYS}


@dataclass(frozen=True, slots=True)
class Level:
    """One degree of agreement.

    Attributes:
        measure: What is measured.
        limit: At least this similarity, or at most this distance.
    """

    measure: Measure
    limit: float = 1.0

    @property
    def name(self) -> str:
        """What it asks for, in words."""
        if self.measure is Measure.EXACT:
            return "exact"
        sign = "≤" if self.measure.is_distance else "≥"
        return f"{self.measure} {sign} {self.limit:g}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared of two records.

    Attributes:
        columns: One field, or several that are joined by blanks.
        levels: Degrees of agreement, the highest first; a pair has the first that it meets. Below
            them is *else*; beside them *null*, where one of both has no value.
        term_frequency: Whether agreement on a rare value weighs more than on a frequent one.
    """

    columns: tuple[str, ...]
    levels: tuple[Level, ...]
    term_frequency: bool = False

    @property
    def name(self) -> str:
        """How reports call it."""
        return "+".join(self.columns)

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of all levels by their number: null, the listed ones, else."""
        return ("null", *(level.name for level in self.levels), "else")


class Take(StrEnum):
    """What of a value goes into a blocking key."""

    WHOLE = "whole"
    PREFIX = "prefix"
    SUFFIX = "suffix"
    SOUNDEX = "soundex"
    WORD = "word"
    SORTED = "sorted"
    YEAR = "year"
    MONTH_DAY = "month_day"


@dataclass(frozen=True, slots=True)
class KeyPart:
    """A part of a blocking key.

    Attributes:
        column: The field.
        take: What of it.
        length: Characters of a prefix or suffix and of the letters in order; which word, counted
            from 1, or from the end if below 0.
    """

    column: str
    take: Take = Take.WHOLE
    length: int = 0

    @property
    def name(self) -> str:
        """Such as ``surname`` or ``prefix(surname, 3)``."""
        if self.take is Take.WHOLE:
            return self.column
        return f"{self.take}({self.column}{f', {self.length}' if self.length else ''})"


@dataclass(frozen=True, slots=True)
class Rule:
    """Records are compared if all these parts are equal; one that lacks a part has no block."""

    parts: tuple[KeyPart, ...]

    @property
    def name(self) -> str:
        """The names of its parts."""
        return " & ".join(part.name for part in self.parts)

    @property
    def columns(self) -> frozenset[str]:
        """What it reads."""
        return frozenset(part.column for part in self.parts)


class Clustering(StrEnum):
    """How links become clusters."""

    COMPONENTS = "components"
    """Whatever is connected by links."""
    AVERAGE = "average"
    """Only what agrees on the whole: the mean weight between the parts of a cluster is positive."""
    ONE_PER_SOURCE = "one_per_source"
    """The best links first, and never two records of one table in a cluster."""


class Result(StrEnum):
    """Which frame is the result of the run."""

    CLUSTERS = "clusters"
    PAIRS = "pairs"


class Engine(StrEnum):
    """What blocks, compares and estimates; all else is the same."""

    SPARK = "spark"
    SPLINK = "splink"
    """Splink on DuckDB, in the process of the worker."""
    AUTO = "auto"
    """Splink where it can do the run, else Spark."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Beyond these a run does not go.

    Attributes:
        pairs: Pairs of all blocks together.
        block_pairs: Pairs of one block; a heavier one is split by a further field, and what is
            still too heavy is left out and reported.
    """

    pairs: int = 1_000_000_000
    block_pairs: int = 1_000_000


@dataclass(frozen=True, slots=True)
class OpenSpec:
    """A run of `linkage.open`.

    Attributes:
        inputs: One table is deduplicated; two or more are linked with each other.
        within: Whether records of one table are compared with each other; if not, a table is taken
            to name nobody twice.
        blocking: Which pairs are compared; empty: proposed from the data.
        comparisons: What of them is compared; empty: proposed from the data.
        threshold: Pairs at least this probable are linked.
        clustering: How links become clusters.
        result: Which frame is the result.
        engine: What blocks, compares and estimates.
        limits: What the run may cost.
        seed: Where random numbers begin.
        known: Input of clusters found before (`cluster`, `source`, `record`), whose records are not
            compared with each other again; None: nothing is known.
        model: What the report `model` of an earlier run says; None: it is estimated.
        truth: A field that tells who a record really is, for evaluation only; None: unknown.
    """

    inputs: tuple[Input, ...]
    within: bool = True
    blocking: tuple[Rule, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    threshold: float = 0.9
    clustering: Clustering = Clustering.AVERAGE
    result: Result = Result.CLUSTERS
    engine: Engine = Engine.SPARK
    limits: Limits = field(default_factory=Limits)
    seed: int = 1
    known: Input | None = None
    model: Mapping[str, Any] | None = None
    truth: str | None = None

    @property
    def zero_config(self) -> bool:
        """Whether something has to be proposed."""
        return not (self.blocking and self.comparisons)

    @property
    def columns(self) -> tuple[str, ...]:
        """Fields that rules and comparisons read."""
        return tuple(sorted({*_columns(self.blocking), *_columns(self.comparisons)}))


def _columns(readers: Iterable[Rule] | Iterable[Comparison]) -> set[str]:
    return {column for reader in readers for column in reader.columns}
