"""The port between the runner and kinds of jobs.

A *kind* is a plug-in: it models its specification, names its inputs, forecasts what a run costs,
and divides it into *stages*. A stage turns frames into one frame. The runner keeps the frame of a
finished stage, so that a run that was killed continues behind it; the frame of the last stage is
the result. A stage must depend on its inputs alone: it may be executed twice.

Nothing here, and neither `specification` nor `inputs` of a kind, needs Spark: specifications are
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
    "HEAVIEST",
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
"""What a stage gives: a frame of Spark, or a table that was made in the process of the worker."""

ColumnType: TypeAlias = Literal["string", "integer", "number", "boolean", "array", "object"]
"""The JSON type of a column's values: a type of JSON Schema (2020-12, validation, 6.1.1).

Times, decimals and binary are strings there.
"""


class InputUnfit(Exception):
    """Data cannot be worked on: a missing column, a doubled id, vectors of unequal length."""


class RunCancelled(Exception):
    """The run is to end; raised out of `StageContext.progress`."""


@dataclass(frozen=True, slots=True)
class Input:
    """One table that a run reads.

    Attributes:
        name: The kind's name for it: left, right, records.
        source: A file or a class.
        fields: Fields that are read besides `id`; None: all.
        identified: Whether a column `id` is required, whose values are unique and never missing.
        local_rows: Rows up to which the worker itself reads the table, so that Spark need not be
            started; 0: Spark reads it.
    """

    name: str
    source: FileSource | ClassSource
    fields: tuple[str, ...] | None = None
    identified: bool = True
    local_rows: int = 0


HEAVIEST: Final = 10
"""Blocks that a forecast names."""


@dataclass(frozen=True, slots=True)
class Block:
    """Records that are compared with each other, and how many pairs that is."""

    name: str
    records: int
    pairs: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected cost of a run.

    Attributes:
        rows: Rows of each input.
        pairs: Pairs that will be compared at most.
        heaviest: The blocks with the most pairs, heaviest first, ten at most.
        memory_bytes: Needed at the same time on the worker.
        time_s: From the kind's first stage to the result. Kinds forecast the work; the runner
            measures and adds what Spark takes for a stage without work.
        starting_s: What Spark took to start in this worker, which the runner measures; 0: it is not
            needed.
        notes: What a person should know before the run, in sentences.
    """

    rows: Mapping[str, int]
    pairs: int = 0
    heaviest: tuple[Block, ...] = ()
    memory_bytes: int = 0
    time_s: float = 0.0
    starting_s: float = 0.0
    notes: tuple[str, ...] = ()


class StageContext(Protocol):
    """The interface of the runner for a stage."""

    @property
    def spark(self) -> SparkSession:
        """The session, classic or Connect: only the DataFrame API is available on both.

        It is opened when it is first used, as by `input` and `output`.
        """

    def input(self, name: str) -> DataFrame:
        """An input of this name: the requested fields, and `id` (string) where it is identified.

        Raises:
            InputUnfit: It lacks requested columns.
        """

    def output(self, stage: str) -> DataFrame:
        """The kept frame of an earlier stage."""

    def input_rows(self, name: str) -> int:
        """Return the number of rows of an input, without Spark."""

    def input_table(self, name: str) -> pa.Table:
        """Return a whole input, in memory, without Spark."""

    def output_table(self, stage: str) -> pa.Table:
        """Return the kept frame of an earlier stage, in memory, without Spark."""

    def progress(self, done: int, total: int) -> None:
        """Report the progress of the stage, in tasks of two seconds at most.

        Raises:
            RunCancelled: The run is to end.
        """

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of the run: pairs compared, pairs left by a filter, matches."""

    def report(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document with the result: an audit, an evaluation, a model."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of a run.

    Attributes:
        name: Unique in the run; shown to people.
        run: Returns the stage's frame; None: the stage only reports. Called again after a crash.
    """

    name: str
    run: Callable[[StageContext], Frame | None] = field(repr=False)


def stages_in(module: str, names: Iterable[str], spec: Any) -> tuple[Stage, ...]:
    """Return stages by their names in a module's `STAGES`; it is imported when the first one runs.

    So kinds can list their stages where Spark is not installed.
    """

    def step(name: str) -> Callable[[StageContext], Frame | None]:
        return lambda context: import_module(module).STAGES[name](spec, context)

    return tuple(Stage(name, step(name)) for name in names)


class Kind(Protocol[SpecT]):
    """One kind of job.

    Attributes:
        name: Its name in requests, such as ``linkage.private``.
        summary: What it does, in a sentence.
        specification: The model of its specifications, which parses and describes them.

    It may have an attribute ``example``: a specification to begin with.
    """

    name: str
    summary: str
    specification: type[SpecT]

    def inputs(self, spec: SpecT) -> tuple[Input, ...]:
        """The tables it reads."""

    def columns(self, spec: SpecT) -> Mapping[str, ColumnType]:
        """The columns of the result: a class that it does not fit is refused before the run."""

    def forecast(self, spec: SpecT, context: StageContext) -> Forecast:
        """Forecast the cost; reads the inputs, but compares nothing.

        Raises:
            InputUnfit: They cannot be worked on.
        """

    def stages(self, spec: SpecT) -> tuple[Stage, ...]:
        """The steps, in order; the last one's frame is the result. At least one."""
