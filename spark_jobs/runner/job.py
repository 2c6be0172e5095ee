"""A job: what is to be done, on what, and what it may cost; read from JSON, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from spark_jobs.kinds import find_kind
from spark_jobs.runner.members import Members
from spark_jobs.runner.port import (
    ClassSource,
    ColumnType,
    FileSource,
    Forecast,
    Input,
    Kind,
    SpecInvalid,
    Stage,
)

__all__ = ["Into", "Job", "Limits", "read_job"]

_DEEPEST: Final = 32
_MOST: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may cost by its forecast; None: as much as it takes.

    Attributes:
        rows: Rows of all inputs together.
        pairs: Pairs compared.
        memory_bytes: Memory at the same time.
        time_s: From the first stage to the result.
    """

    rows: int | None = None
    pairs: int | None = None
    memory_bytes: int | None = None
    time_s: float | None = None

    def exceeded(self, forecast: Forecast) -> tuple[str, ...]:
        """Return a sentence for each limit that a forecast is beyond."""
        told = (
            ("rows", sum(forecast.rows.values()), self.rows),
            ("pairs", forecast.pairs, self.pairs),
            ("memory_bytes", forecast.memory_bytes, self.memory_bytes),
            ("time_s", forecast.time_s, self.time_s),
        )
        return tuple(
            f"{name}: {expected:,.0f} are expected, and {limit:,.0f} are allowed."
            for name, expected, limit in told
            if limit is not None and expected > limit
        )


@dataclass(frozen=True, slots=True)
class Into:
    """A class that a result is written into.

    Attributes:
        database: Of which database.
        class_name: Which class.
        id: The columns whose values, joined by commas, are the ids.
    """

    database: str
    class_name: str
    id: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done.

    Attributes:
        kind: Its kind.
        spec: The specification, as its kind read it.
        inputs: The tables that it reads; classes have their database.
        limits: What it may cost.
        into: Where its result is written besides; None: nowhere.
        fingerprint: Of what determines its stages; the same job under other limits has the same.
    """

    kind: Kind[Any]
    spec: Any
    inputs: tuple[Input, ...]
    limits: Limits = Limits()
    into: Into | None = None
    fingerprint: str = ""

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """The columns of the result."""
        return self.kind.columns(self.spec)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The steps, in order."""
        return self.kind.stages(self.spec)


def read_job(document: Any, database: str | None = None) -> Job:
    """Read a job: ``{"kind": …, "spec": {…}, "limits": {…}, "into": {…}}``.

    Args:
        document: The JSON.
        database: The one that its classes belong to; None: it may name files, and no classes.

    Raises:
        SpecInvalid: It is not one; names the place in it.
    """
    _check_shape(document, _DEEPEST)
    members = Members(document)
    kind = find_kind(members.text("kind"))
    spec_document = members.any("spec")
    limits = _limits(members.members("limits", {}))
    into = _into(members.members("into"), database) if "into" in members.rest() else None
    members.end()
    try:
        spec = kind.parse(Members(spec_document).rest())
    except SpecInvalid as error:
        raise SpecInvalid(f"/spec{error.pointer}", error.reason) from error
    inputs = [_placed(i, database, spec_document) for i in kind.inputs(spec)]
    return Job(kind, spec, tuple(inputs), limits, into, _fingerprint(document))


def _fingerprint(document: Mapping[str, Any]) -> str:
    told = json.dumps([document["kind"], document["spec"]], sort_keys=True)
    return blake2b(told.encode(), digest_size=16).hexdigest()


def _limits(members: Members) -> Limits:
    whole = {
        name: members.whole(name, least=0, most=_MOST, default=None)
        for name in ("rows", "pairs", "memory_bytes")
    }
    limits = Limits(**whole, time_s=members.number("time_s", above=0, most=1e9, default=None))
    members.end()
    return limits


def _into(members: Members, database: str | None) -> Into:
    if database is None:
        raise SpecInvalid("/into", "no service runs here: the result goes to a file")
    into = Into(database, members.text("class"), members.texts("id", most=8, default=("id",)))
    members.end()
    return into


def _placed(input_: Input, database: str | None, spec: Mapping[str, Any]) -> Input:
    """Give a class its database; files are for those who have the machine, not for HTTP."""
    pointer = f"/spec/{input_.name}" if input_.name in spec else "/spec"
    source = input_.source
    if isinstance(source, FileSource):
        if database is not None:
            raise SpecInvalid(pointer, f"{input_.name} must be a class: files are not read here")
        return input_
    if database is None:
        raise SpecInvalid(pointer, f"{input_.name} must be a file: no service runs here")
    if source.database not in ("", database):
        raise SpecInvalid(pointer, f"{input_.name} must be a class of {database}")
    return replace(input_, source=ClassSource(database, source.class_name, source.filter))


def _check_shape(document: Any, left: int) -> None:
    """Refuse what is nested too deeply, and NUL, which the catalogue cannot hold."""
    if not left:
        raise SpecInvalid("", f"it is nested deeper than {_DEEPEST} levels")
    if isinstance(document, str) and "\0" in document:
        raise SpecInvalid("", "it holds the character NUL")
    if isinstance(document, Mapping):
        children = [*document, *document.values()]
    else:
        children = document if isinstance(document, list) else []
    for child in children:
        _check_shape(child, left - 1)
