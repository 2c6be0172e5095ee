"""What a kind of job is to the runner, and what the runner gives to it.

A *kind* is a plug-in: it reads a specification, names its inputs, forecasts what a run costs, and
divides it into *stages*. A stage turns frames into one frame. The runner keeps what a finished
stage gave, so that a run that was killed goes on behind it; the frame of the last stage is the
result. What a stage does must follow from its inputs alone: it may be run twice.

Nothing here, and nothing that a kind does in `parse` and `inputs`, needs Spark: specifications are
read where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:  # the API reads specifications, and has no Spark
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Block",
    "ClassSource",
    "ColumnType",
    "FileSource",
    "Forecast",
    "Input",
    "InputUnfit",
    "Kind",
    "RunCancelled",
    "SpecInvalid",
    "Stage",
    "StageContext",
]

SpecT = TypeVar("SpecT")

ColumnType: TypeAlias = Literal["string", "integer", "number", "boolean", "array", "object"]
"""What a column of a result holds as JSON: a type of JSON Schema (2020-12, validation, 6.1.1).

Times, decimals and binary are strings there.
"""


class SpecInvalid(Exception):
    """A specification says what it must not.

    Attributes:
        pointer: Where, as a JSON pointer (RFC 6901) into the specification.
        reason: What is wrong and what is asked for, in a sentence.
    """

    def __init__(self, pointer: str, reason: str) -> None:
        super().__init__(f"{pointer or '/'}: {reason}")
        self.pointer = pointer
        self.reason = reason


class InputUnfit(Exception):
    """Data cannot be worked on: a missing column, a doubled id, vectors of unequal length."""


class RunCancelled(Exception):
    """The run is to end; raised out of `StageContext.progress`."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file or a folder of files.

    Attributes:
        path: Where, as the worker sees it; only `portolan job run` may name files.
        format: csv, json (one object a line) or parquet.
    """

    path: str
    format: str


@dataclass(frozen=True, slots=True)
class ClassSource:
    """Objects of a class, wherever its groups lie.

    Attributes:
        database: Of which database.
        class_name: Which class.
        filter: Only what meets it, in the query language; None: all.
    """

    database: str
    class_name: str
    filter: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """One table that a run reads.

    Attributes:
        name: What the kind calls it: left, right, records.
        source: Where it lies.
        fields: What is read besides `id`; None: everything.
    """

    name: str
    source: FileSource | ClassSource
    fields: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """Records that are compared with each other, and how many pairs that is."""

    name: str
    records: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will cost, before it costs it.

    Attributes:
        rows: Rows of each input.
        pairs: Pairs that will be compared at most.
        heaviest: The blocks with the most pairs, heaviest first, ten at most.
        memory_bytes: Needed at the same time on the worker.
        time_s: From the kind's first stage to the result. Kinds forecast the work; what Spark
            takes for a stage in which nothing is done, the runner measures and adds.
        notes: What a person should know before saying go, in sentences.
    """

    rows: Mapping[str, int]
    pairs: int = 0
    heaviest: tuple[Block, ...] = ()
    memory_bytes: int = 0
    time_s: float = 0.0
    notes: tuple[str, ...] = ()


class StageContext(Protocol):
    """What a stage works with."""

    @property
    def spark(self) -> SparkSession:
        """The session; classic or Connect: the DataFrame API is all there is."""

    def input(self, name: str) -> DataFrame:
        """An input of this name: `id` (string) and the fields asked for.

        Raises:
            InputUnfit: It has not got the columns that were asked for.
        """

    def output(self, stage: str) -> DataFrame:
        """What an earlier stage gave, as it was kept."""

    def progress(self, done: int, total: int) -> None:
        """Say how far the stage is, in tasks of two seconds at most.

        Raises:
            RunCancelled: The run is to end.
        """

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of the run: pairs compared, pairs left by a filter, matches."""

    def report(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document beside the result: an audit, an evaluation, a model."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a run.

    Attributes:
        name: Unique in the run; shown to people.
        run: Gives the stage's frame; None: the stage only reports. Called again after a crash.
    """

    name: str
    run: Callable[[StageContext], DataFrame | None] = field(repr=False)


class Kind(Protocol[SpecT]):
    """One kind of job.

    Attributes:
        name: How requests call it, such as ``linkage.private``.
        summary: What it does, in a sentence.

    It may have an attribute ``example``: a specification for people to begin with.
    """

    name: str
    summary: str

    def parse(self, document: Mapping[str, Any]) -> SpecT:
        """Read a specification.

        Raises:
            SpecInvalid: It is not one; names the place.
        """

    def inputs(self, spec: SpecT) -> tuple[Input, ...]:
        """The tables it reads."""

    def columns(self, spec: SpecT) -> Mapping[str, ColumnType]:
        """The columns of the result, so that it is known before the run where it can be written."""

    def forecast(self, spec: SpecT, context: StageContext) -> Forecast:
        """What the run will cost; reads the inputs, but compares nothing.

        Raises:
            InputUnfit: They cannot be worked on.
        """

    def stages(self, spec: SpecT) -> tuple[Stage, ...]:
        """The steps, in order; the last one's frame is the result. At least one."""
