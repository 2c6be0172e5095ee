"""A job: its kind, specification and cost limits; parsed from JSON without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Annotated, Any, Final, TypeVar

from pydantic import Field

from spark_jobs.kinds import find_kind
from spark_jobs.runner.port import ColumnType, Forecast, Input, Kind, Stage
from spark_jobs.runner.specification import (
    ClassReference,
    ClassSource,
    FileSource,
    Names,
    Specification,
    SpecInvalid,
    Text,
)

__all__ = ["STORED_VERSION", "CostLimits", "Into", "Job", "JobDocument", "parse_job", "restore_job"]

_MAX_DEPTH: Final = 32
STORED_VERSION: Final = 1
"""Version of a job's stored form; a worker of another version refuses the run."""

MAX_PRIORITY: Final = 100

_Count = Annotated[int, Field(ge=0, le=2**63 - 1)]

ReferenceT = TypeVar("ReferenceT", bound=ClassReference)


class CostLimits(Specification):
    """Limits of a run's forecast cost; None: no limit.

    Attributes:
        rows: Rows of all inputs together.
        pairs: Pairs compared.
        memory_bytes: Peak memory.
        time_s: From the first stage to the result.
    """

    rows: _Count | None = None
    pairs: _Count | None = None
    memory_bytes: _Count | None = None
    time_s: Annotated[float, Field(gt=0, le=1e9)] | None = None

    def exceeded(self, forecast: Forecast) -> tuple[str, ...]:
        """Return a sentence for each limit that a forecast exceeds."""
        figures = (
            ("rows", sum(forecast.rows.values()), self.rows),
            ("pairs", forecast.pairs, self.pairs),
            ("memory_bytes", forecast.memory_bytes, self.memory_bytes),
            ("time_s", forecast.time_s, self.time_s),
        )
        return tuple(
            f"{name}: {expected:,.0f} are expected, and {limit:,.0f} are allowed."
            for name, expected, limit in figures
            if limit is not None and expected > limit
        )


class Into(ClassReference):
    """A class that a result is written into.

    Attributes:
        id: The columns whose values, joined by commas, are the ids.
    """

    id: Names = ("id",)


class JobDocument(Specification):
    """A job as JSON.

    Attributes:
        kind: The name of its kind.
        spec: The kind's specification, by the kind's model.
        limits: Limits of its cost.
        into: The class that its result is also written into; None: none.
        priority: Its priority for admission control; higher is more important.
    """

    kind: Text
    spec: dict[str, Any]
    limits: CostLimits = CostLimits()
    into: Into | None = None
    priority: Annotated[int, Field(ge=0, le=MAX_PRIORITY)] = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job with its specification parsed by its kind, and its classes' database resolved."""

    document: Mapping[str, Any]
    kind: Kind[Any]
    spec: Any
    inputs: tuple[Input, ...]
    limits: CostLimits
    into: Into | None
    priority: int

    @property
    def fingerprint(self) -> str:
        """A digest of the kind and the specification, which determine its stages."""
        text = json.dumps([self.document["kind"], self.document["spec"]], sort_keys=True)
        return blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        return self.kind.columns(self.spec)

    @property
    def stages(self) -> tuple[Stage, ...]:
        return self.kind.stages(self.spec)

    def pointer_to(self, input_: Input) -> str:
        """Return the location of an input in the document, as a JSON pointer."""
        return _pointer_to(input_, self.document["spec"])

    @property
    def reads(self) -> list[str]:
        sources = (input_.source for input_ in self.inputs)
        return [source.class_name for source in sources if isinstance(source, ClassSource)]

    def to_stored(self) -> dict[str, Any]:
        """Return the stored form: the job, and the classes that it reads and writes.

        The classes belong to the run's database, which a restore can rename.
        """
        writes = None if self.into is None else self.into.class_name
        return {
            "version": STORED_VERSION,
            "job": self.document,
            "reads": self.reads,
            "writes": writes,
        }


def parse_job(document: Any, database: str | None = None, *, stream: bool = False) -> Job:
    """Parse a job: ``{"kind": …, "spec": {…}, "limits": {…}, "into": {…}, "priority": 0}``.

    Its classes belong to the database; without a database it can name only files.

    Args:
        stream: Whether it is executed as a stream, not as a run.

    Raises:
        SpecInvalid: It is malformed; names the location of the mistake.
    """
    _check_shape(document, _MAX_DEPTH)
    parsed = JobDocument.parse(document)
    kind = find_kind(parsed.kind)
    try:
        spec = kind.specification.parse(parsed.spec)
    except SpecInvalid as error:
        raise SpecInvalid(f"/spec{error.pointer}", error.reason) from None
    _check_mode(parsed, spec, stream=stream)
    inputs = tuple(_resolved(i, database, parsed.spec) for i in kind.inputs(spec))
    into = parsed.into
    if into is not None:
        if database is None:
            raise SpecInvalid("/into", "no service runs here: the result goes to a file")
        into = _in_database(into, database, "/into")
    return Job(document, kind, spec, inputs, parsed.limits, into, parsed.priority)


def _check_mode(parsed: JobDocument, spec: Specification, *, stream: bool) -> None:
    if spec.endless and not stream:
        reason = "a run ends, and a stream does not: `portolan job stream` executes it"
        raise SpecInvalid("/spec/mode", reason)
    if stream and not spec.endless:
        raise SpecInvalid("/spec/mode", f"a job of {parsed.kind} is expected whose mode is stream")
    if stream and parsed.limits != CostLimits():
        raise SpecInvalid("/limits", "a stream has no forecast that limits could be compared with")


def restore_job(stored: Mapping[str, Any], database: str) -> Job:
    """Return the job of a run from its form by `Job.to_stored`.

    Raises:
        SpecInvalid: It was stored by another version, or its kind is not installed here.
    """
    if stored.get("version") != STORED_VERSION:
        raise SpecInvalid("", "the job was submitted to another version: submit it again")
    return parse_job(stored["job"], database)


def _pointer_to(input_: Input, spec: Mapping[str, Any]) -> str:
    return f"/spec/{input_.name}" if input_.name in spec else "/spec"


def _resolved(input_: Input, database: str | None, spec: Mapping[str, Any]) -> Input:
    """Resolve the database of a class; files are for users of the machine, not for HTTP."""
    pointer, source = _pointer_to(input_, spec), input_.source
    if isinstance(source, FileSource):
        if database is not None:
            raise SpecInvalid(pointer, f"{input_.name} must be a class: files are not read here")
        return input_
    if database is None:
        raise SpecInvalid(pointer, f"{input_.name} must be a file: no service runs here")
    return replace(input_, source=_in_database(source, database, pointer))


def _in_database(reference: ReferenceT, database: str, pointer: str) -> ReferenceT:
    if reference.database not in ("", database):
        raise SpecInvalid(pointer, f"{reference.class_name} must be a class of {database}")
    return reference.model_copy(update={"database": database})


def _check_shape(document: Any, depth: int) -> None:
    """Refuse deep nesting, and NUL, which the catalogue cannot store."""
    if not depth:
        raise SpecInvalid("", f"it is nested deeper than {_MAX_DEPTH} levels")
    if isinstance(document, str) and "\0" in document:
        raise SpecInvalid("", "it holds the character NUL")
    if isinstance(document, Mapping):
        children = [*document, *document.values()]
    else:
        children = document if isinstance(document, list) else []
    for child in children:
        _check_shape(child, depth - 1)
