"""The port between the runner and kinds of jobs.

A *kind* is a plug-in: it models its specification, names its inputs, forecasts what a run costs,
and divides it into *stages*. A stage turns frames into one frame. The runner keeps what a finished
stage gave, so that a run that was killed goes on behind it; the frame of the last stage is the
result. What a stage does must follow from its inputs alone: it may be run twice.

Nothing here, and neither `specification` nor `inputs` of a kind, needs Spark: specifications are
parsed where it is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from spark_jobs.runner.specification import ClassSource, FileSource, Specification

if TYPE_CHECKING:  # the API parses specifications, and has no Spark
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Block",
    "ColumnType",
    "Forecast",
    "Input",
    "InputUnfit",
    "Kind",
    "RunCancelled",
    "Stage",
    "StageContext",
    "stages_in",
]

SpecT = TypeVar("SpecT", bound=Specification)

ColumnType: TypeAlias = Literal["string", "integer", "number", "boolean", "array", "object"]
"""What a column of a result holds as JSON: a type of JSON Schema (2020-12, validation, 6.1.1).

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
    """What the runner gives a stage."""

    @property
    def spark(self) -> SparkSession:
        """The session; classic or Connect: the DataFrame API is all there is."""

    def input(self, name: str) -> DataFrame:
        """An input of this name: `id` (string) and the requested fields.

        Raises:
            InputUnfit: It lacks requested columns.
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


def stages_in(module: str, names: Iterable[str], spec: Any) -> tuple[Stage, ...]:
    """Return stages by their names in a module's `STAGES`; it is imported when the first one runs.

    So kinds can name their stages where Spark is not installed.
    """

    def step(name: str) -> Callable[[StageContext], DataFrame | None]:
        return lambda context: import_module(module).STAGES[name](spec, context)

    return tuple(Stage(name, step(name)) for name in names)


class Kind(Protocol[SpecT]):
    """One kind of job.

    Attributes:
        name: How requests call it, such as ``linkage.private``.
        summary: What it does, in a sentence.
        specification: The model of its specifications, which parses and describes them.

    It may have an attribute ``example``: a specification for people to begin with.
    """

    name: str
    summary: str
    specification: type[SpecT]

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
