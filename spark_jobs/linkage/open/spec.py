"""Specifications of open linkage: inputs, blocking rules, comparisons, thresholds.

A specification never becomes code: fields are looked up by name, and what is done with them comes
from closed lists.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from math import prod
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from spark_jobs.linkage.open.rules import Rule
from spark_jobs.runner.port import Input
from spark_jobs.runner.specification import (
    Names,
    Source,
    Specification,
    SpecInvalid,
    Text,
    short_form,
)

__all__ = [
    "KNOWN",
    "MOST_LOCAL_RECORDS",
    "AgreementLevel",
    "Clustering",
    "FieldComparison",
    "LinkageEngine",
    "LinkagePlan",
    "LinkageResult",
    "Measure",
    "OpenSpec",
    "WholeRecords",
]

KNOWN: Final = "known"
"""The input of clusters found before: `cluster`, `source`, `record`."""

MOST_RULES: Final = 32
_MOST_INPUTS: Final = 16
_MOST_COMPARISONS: Final = 32
_MOST_PATTERNS: Final = 2**62

MOST_LOCAL_RECORDS: Final = 200_000
"""Records of all inputs that are linked in the process of the worker at most."""


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
        """Whether it measures difference: then a limit is the most instead of the least."""
        return self in {Measure.LEVENSHTEIN, Measure.NUMBER, Measure.DAYS}

    @property
    def is_numeric(self) -> bool:
        return self in {Measure.NUMBER, Measure.DAYS}


_Distance: TypeAlias = Annotated[float, Field(ge=0, le=1e12)]
_Similarity: TypeAlias = Annotated[float, Field(gt=0, le=1)]


class AgreementLevel(Specification):
    """One degree of agreement: ``"exact"``, or one measure with its limit.

    A limit is the least similarity, or the greatest distance.
    """

    model_config = ConfigDict(json_schema_extra=short_form({"const": "exact"}))

    exact: Literal[True] | None = None
    levenshtein: _Distance | None = None
    jaro_winkler: _Similarity | None = None
    jaccard: _Similarity | None = None
    number: _Distance | None = None
    days: _Distance | None = None

    @model_validator(mode="before")
    @classmethod
    def _require_one_measure(cls, document: Any) -> Any:
        if document == Measure.EXACT:
            return {"exact": True}
        if isinstance(document, dict) and len(document) == 1:
            ((name, limit),) = document.items()
            if name in {*Measure} and limit is not None:
                return document
        reason = '"exact" or an object like {{"jaro_winkler": 0.9}} is expected'
        raise PydanticCustomError("level", reason)

    @property
    def measure(self) -> Measure:
        (name,) = self.model_fields_set
        return Measure(name)

    @property
    def limit(self) -> float:
        """At least this similarity, or at most this distance."""
        return float(getattr(self, self.measure))

    @property
    def name(self) -> str:
        if self.exact:
            return "exact"
        sign = "≤" if self.measure.is_distance else "≥"
        return f"{self.measure} {sign} {self.limit:g}"

    @model_serializer
    def _to_json(self) -> str | dict[str, float]:
        return "exact" if self.exact else {self.measure.value: self.limit}


class FieldComparison(Specification):
    """What is compared of two records.

    Attributes:
        columns: One field, or several that are joined by blanks.
        levels: Degrees of agreement, the highest first; a pair has the first that it meets. Below
            them is *else*; beside them *null*, where one of both has no value.
        term_frequency: Whether agreement on a rare value weighs more than on a frequent one.
    """

    columns: Names
    levels: Annotated[tuple[AgreementLevel, ...], Field(min_length=1, max_length=8)]
    term_frequency: bool = False

    @property
    def name(self) -> str:
        return "+".join(self.columns)

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of all levels by their number: null, the listed ones, else."""
        return ("null", *(level.name for level in self.levels), "else")


class Clustering(StrEnum):
    """How links become clusters."""

    COMPONENTS = "components"
    """Whatever is connected by links."""
    AVERAGE = "average"
    """Only what agrees on the whole: the mean weight between the parts of a cluster is positive."""
    ONE_PER_SOURCE = "one_per_source"
    """The best links first, and never two records of one table in a cluster."""


class LinkageResult(StrEnum):
    """Which frame is the result of the run."""

    CLUSTERS = "clusters"
    PAIRS = "pairs"


class LinkageEngine(StrEnum):
    """What executes a run."""

    AUTO = "auto"
    """Our kernels, in the process of the worker where the input fits, else on Spark."""
    LOCAL = "local"
    """Our kernels, in the process of the worker; Spark is not started."""
    SPARK = "spark"
    """Our kernels on Spark, for inputs of any size."""
    SPLINK = "splink"
    """Splink on DuckDB, in the process of the worker, on records that Spark has prepared."""


class PairLimits(Specification):
    """Beyond these a run does not go.

    Attributes:
        pairs: Pairs of all blocks together.
        block_pairs: Pairs of one block; a heavier one is split by a further field, and what is
            still too heavy is left out and reported.
    """

    pairs: Annotated[int, Field(ge=1, le=10**12)] = 1_000_000_000
    block_pairs: Annotated[int, Field(ge=1, le=10**9)] = 1_000_000


class WholeRecords(Specification):
    """Records compared as a whole, by the words and n-grams that they share and how rare these are.

    Attributes:
        columns: The fields whose text is the record's.
        neighbours: The most similar records of each that are candidates.
    """

    columns: Names
    neighbours: Annotated[int, Field(ge=1, le=100)] = 10


class LinkagePlan(Specification):
    """What is compared.

    Attributes:
        blocking: Which pairs are compared; empty: proposed from the data.
        comparisons: What of them is compared; empty: proposed from the data.
        similarity: Whole records instead of both; None: fields.
    """

    blocking: Annotated[tuple[Rule, ...], Field(max_length=MOST_RULES)] = ()
    comparisons: Annotated[tuple[FieldComparison, ...], Field(max_length=_MOST_COMPARISONS)] = ()
    similarity: WholeRecords | None = None

    @property
    def is_complete(self) -> bool:
        return self.similarity is not None or bool(self.blocking and self.comparisons)

    @property
    def columns(self) -> tuple[str, ...]:
        whole = self.similarity.columns if self.similarity else ()
        return tuple(sorted({*_columns(self.blocking), *_columns(self.comparisons), *whole}))

    def prepared(self) -> Self:
        """Return it with the comparison that prepares the text of whole records."""
        if self.similarity is None:
            return self
        text = FieldComparison(
            columns=self.similarity.columns, levels=(AgreementLevel(exact=True),)
        )
        return self.model_copy(update={"comparisons": (text,)})


def _columns(readers: Iterable[Rule] | Iterable[FieldComparison]) -> set[str]:
    return {column for reader in readers for column in reader.columns}


def _input_name(name: str) -> str:
    if not name.isidentifier() or name == KNOWN:
        raise PydanticCustomError("input_name", "A name of letters, digits and _ is expected")
    return name


def _usual_clustering(members: dict[str, Any]) -> Clustering:
    return Clustering.AVERAGE if members.get("within") else Clustering.ONE_PER_SOURCE


class OpenSpec(LinkagePlan):
    """A specification of `linkage.open`.

    Attributes:
        sources: One table is deduplicated; two or more are linked with each other.
        zero_config: Whether rules and comparisons may be missing, to be proposed from the data.
        within: Whether records of one table are compared with each other; if not, a table is taken
            to name nobody twice.
        threshold: Pairs at least this probable are linked.
        clustering: How links become clusters.
        result: Which frame is the result.
        engine: What executes the run; all but Splink have the same result.
        limits: What the run may cost.
        seed: Where random numbers begin.
        known: Clusters found before, whose records are not compared with each other again.
        model: The report `model` of an earlier run; None: it is estimated.
        truth: A field that identifies the person of a record, for evaluation only; None: unknown.
    """

    sources: Annotated[
        dict[Annotated[str, AfterValidator(_input_name)], Source],
        Field(min_length=1, max_length=_MOST_INPUTS),
    ] = Field(validation_alias="inputs")
    zero_config: bool = False
    within: bool = Field(default_factory=lambda members: len(members.get("sources", ())) == 1)
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.9
    clustering: Clustering = Field(default_factory=_usual_clustering)
    result: LinkageResult = LinkageResult.CLUSTERS
    engine: LinkageEngine = LinkageEngine.AUTO
    limits: PairLimits = PairLimits()
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    known: Source | None = None
    model: dict[str, Any] | None = None
    truth: Text | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check what concerns several members; the pointers are those of the document."""
        self._check_similarity()
        given = self.zero_config or self.similarity is not None
        if not given and not self.blocking:
            raise SpecInvalid("/blocking", "rules are expected, or zero_config: true")
        if not given and not self.comparisons:
            raise SpecInvalid("/comparisons", "comparisons are expected, or zero_config: true")
        if not self.within and len(self.sources) == 1:
            raise SpecInvalid("/within", "one input alone can only be compared with itself")
        if self.model is not None and not self.comparisons:
            raise SpecInvalid("/model", "the comparisons that it was estimated for are missing")
        self._check_comparisons()
        return self

    def _check_similarity(self) -> None:
        if self.similarity is None:
            return
        if self.blocking or self.comparisons:
            raise SpecInvalid(
                "/similarity", "it stands for blocking and comparisons, not beside them"
            )
        if self.engine is LinkageEngine.SPLINK:
            raise SpecInvalid("/engine", "Splink compares fields only, no whole records")

    def _check_comparisons(self) -> None:
        for number, comparison in enumerate(self.comparisons):
            if comparison.term_frequency and not comparison.levels[0].exact:
                reason = "term_frequency needs exact as the first level"
                raise SpecInvalid(f"/comparisons/{number}/levels", reason)
        if len({comparison.name for comparison in self.comparisons}) < len(self.comparisons):
            raise SpecInvalid("/comparisons", "fields are compared twice")
        # A pattern is one 64-bit number.
        if prod(len(comparison.level_names) for comparison in self.comparisons) > _MOST_PATTERNS:
            raise SpecInvalid("/comparisons", "these are too many levels all together")

    @property
    def inputs(self) -> tuple[Input, ...]:
        fields = tuple(sorted({*self.columns, *([self.truth] if self.truth else [])} - {"id"}))
        needed = fields if self.is_complete else None
        rows = self.local_records
        return tuple(
            Input(name, self.sources[name], needed, local_rows=rows)
            for name in sorted(self.sources)
        )

    @property
    def local_records(self) -> int:
        """Records of all inputs, up to which Spark may not be needed."""
        local = self.engine in {LinkageEngine.AUTO, LinkageEngine.LOCAL}
        return MOST_LOCAL_RECORDS if local else 0
