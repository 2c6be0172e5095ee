"""The port between the runner and kinds of jobs.

A *kind* is a plug-in: it models its specification, names its inputs, forecasts what a run costs,
and divides it into *stages*. A stage turns frames into one frame. The runner stores the frame of a
finished stage, so a killed run continues after it; the frame of the last stage is the result. A
stage must depend on its inputs alone: it can be executed twice.

This module, and `specification` and `inputs` of a kind, must not need Spark: specifications are
parsed where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar

from spark_jobs.runner.specification import ClassSource, FileSource, Specification

if TYPE_CHECKING:  # the API parses specifications, and has no Spark
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "MAX_NAMED_BLOCKS",
    "Block",
    "ColumnType",
    "Forecast",
    "Frame",
    "Input",
    "InputUnfit",
    "Kind",
    "RunCancelled",
    "Stage",
    "StageContext",
    "stages_in",
]

SpecT = TypeVar("SpecT", bound=Specification)

Frame: TypeAlias = "DataFrame | pa.Table"
"""The output of a stage: a Spark frame, or a table built in the worker's process."""

ColumnType: TypeAlias = Literal["string", "integer", "number", "boolean", "array", "object"]
"""The JSON type of a column's values: a type of JSON Schema (2020-12, validation, 6.1.1).

Times, decimals and binary values are strings.
"""


class InputUnfit(Exception):
    """The data is unsuitable: a missing column, a duplicate id, vectors of unequal length."""


class RunCancelled(Exception):
    """The run must end; raised by `StageContext.progress`."""


@dataclass(frozen=True, slots=True)
class Input:
    """One table that a run reads.

    Attributes:
        name: The kind's name for it: left, right, records.
        source: A file or a class.
        fields: Fields read besides `id`; None: all.
        identified: Whether a column `id` is required, with unique values and none missing.
        local_rows: Maximum rows of a table that the worker reads without starting Spark; 0: Spark
            reads it.
    """

    name: str
    source: FileSource | ClassSource
    fields: tuple[str, ...] | None = None
    identified: bool = True
    local_rows: int = 0


MAX_NAMED_BLOCKS: Final = 10
"""Maximum blocks that a forecast names."""


@dataclass(frozen=True, slots=True)
class Block:
    """A block of records that are compared with each other, and its number of pairs."""

    name: str
    records: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected cost of a run.

    Attributes:
        rows: Rows of each input.
        pairs: Maximum pairs that will be compared.
        heaviest: The blocks with the most pairs, heaviest first, ten at most.
        memory_bytes: Peak memory of the worker.
        time_s: From the kind's first stage to the result. Kinds forecast the work; the runner
            measures and adds Spark's overhead per stage.
        starting_s: Seconds that Spark took to start in this worker, measured by the runner; 0: it
            is not needed.
        notes: Advice before the run, in sentences.
    """

    rows: Mapping[str, int]
    pairs: int = 0
    heaviest: tuple[Block, ...] = ()
    memory_bytes: int = 0
    time_s: float = 0.0
    starting_s: float = 0.0
    notes: tuple[str, ...] = ()


class StageContext(Protocol):
    """The runner's interface for a stage."""

    @property
    def spark(self) -> SparkSession:
        """The session, classic or Connect: only the DataFrame API is available on both.

        The first use opens it; `input` and `output` use it.
        """

    def input(self, name: str) -> DataFrame:
        """Return an input: the requested fields, and `id` (string) if it is identified.

        Raises:
            InputUnfit: Requested columns are missing.
        """

    def output(self, stage: str) -> DataFrame:
        """Return the stored frame of an earlier stage."""

    def input_rows(self, name: str) -> int:
        """Return the number of rows of an input, without Spark."""

    def input_table(self, name: str) -> pa.Table:
        """Return an input, in memory, without Spark."""

    def output_table(self, stage: str) -> pa.Table:
        """Return the stored frame of an earlier stage, in memory, without Spark."""

    def progress(self, done: int, total: int) -> None:
        """Report the progress of the stage in tasks, each two seconds at most.

        Raises:
            RunCancelled: The run must end.
        """

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of the run: pairs compared, pairs that pass a filter, matches."""

    def report(self, name: str, document: Mapping[str, Any]) -> None:
        """Store a document with the result: an audit, an evaluation, a model."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a run.

    Attributes:
        name: Unique in the run; shown to users.
        run: Returns the stage's frame; None: the stage only reports. Called again after a crash.
    """

    name: str
    run: Callable[[StageContext], Frame | None] = field(repr=False)


def stages_in(module: str, names: Iterable[str], spec: Any) -> tuple[Stage, ...]:
    """Return stages by their names in a module's `STAGES`, imported when the first stage runs.

    Kinds can thus list their stages where Spark is not installed.
    """

    def step(name: str) -> Callable[[StageContext], Frame | None]:
        return lambda context: import_module(module).STAGES[name](spec, context)

    return tuple(Stage(name, step(name)) for name in names)


class Kind(Protocol[SpecT]):
    """One kind of job.

    Attributes:
        name: Its name in requests, such as ``linkage.private``.
        summary: What it does, in a sentence.
        specification: The model that parses and describes its specifications.

    It may have an attribute ``example``: a specification to start from.
    """

    name: str
    summary: str
    specification: type[SpecT]

    def inputs(self, spec: SpecT) -> tuple[Input, ...]:
        """Return the tables it reads."""

    def columns(self, spec: SpecT) -> Mapping[str, ColumnType]:
        """Return the columns of the result; a class they do not fit is refused before the run."""

    def forecast(self, spec: SpecT, context: StageContext) -> Forecast:
        """Forecast the cost; read the inputs, but compare nothing.

        Raises:
            InputUnfit: The inputs are unsuitable.
        """

    def stages(self, spec: SpecT) -> tuple[Stage, ...]:
        """Return the steps in order, at least one; the last frame is the result."""
