"""Writes a result into a class through the mediator, including guard, outbox and placement.

The rows of a stored result never change, and each operation is named by the result and the object.
So a run that is killed here and resumed repeats the same operations, and a store that remembers an
operation answers without applying it: intermediate writes of others are kept. A run whose stored
files are gone has another result, with other names, and writes all of it. Readers can see some of
the objects before all are written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from mediator.base.errors import AdvisoryOnly, Invalid, Location, MediatorError, NotFound
from mediator.data_plane.port import DataPlane
from mediator.model.operations import Operation, Put
from mediator.routing.model import ClassRoute
from mediator.schema.ids import check_id
from mediator.schema.tree import ClassSchema, Field
from mediator.schema.types import FieldType
from spark_jobs.runner.job import Into
from spark_jobs.runner.port import ColumnType, InputUnfit, StageContext
from spark_jobs.runner.results import ResultFiles
from spark_jobs.sinks.doubled import duplicate_text

__all__ = ["ClassSink", "misfits"]

_ACCEPTED_TYPES: Final[Mapping[FieldType, frozenset[ColumnType]]] = {
    FieldType.INTEGER: frozenset({"integer"}),
    FieldType.FLOAT: frozenset({"integer", "number"}),
    FieldType.BOOLEAN: frozenset({"boolean"}),
    FieldType.DOCUMENT: frozenset({"object"}),
    FieldType.MAP: frozenset({"object"}),
    FieldType.LIST: frozenset({"array"}),
    FieldType.SET: frozenset({"array"}),
}
_TEXT_TYPES: Final[frozenset[ColumnType]] = frozenset({"string"})
"""The types that all other fields accept; the value decides, for instance, if it is a time."""


def misfits(into: Into, columns: Mapping[str, ColumnType], schema: ClassSchema) -> list[Location]:
    """Return the reasons why rows of a result cannot become objects of a class, as it is now.

    Returns:
        Every mistake, with its location in the job; none if the types of rows fit.
    """
    names = ", ".join(columns)
    ids = (
        f"the result has no column {name} to make ids of; it has: {names}"
        for name in into.id
        if name not in columns
    )
    fields = (
        *(_reason(into, name, type_, schema) for name, type_ in columns.items()),
        *(
            _missing_reason(into, field)
            for name, field in schema.fields.items()
            if name not in columns
        ),
    )
    return [
        *(Location("/into/id", reason) for reason in ids),
        *(Location("/into/class", reason) for reason in fields if reason is not None),
    ]


def _reason(into: Into, name: str, type_: ColumnType, schema: ClassSchema) -> str | None:
    field = schema.fields.get(name)
    if field is None:
        in_id = name in into.id  # such a column does not need a field
        return None if in_id else f"{into.class_name} has no field {name}, which the result has"
    if field.updated:
        return f"{into.class_name}.{name} is set by the service, and the result has it too"
    if type_ in _ACCEPTED_TYPES.get(field.type, _TEXT_TYPES):
        return None
    return f"{into.class_name}.{name} is of type {field.type}, and the result has {type_} there"


def _missing_reason(into: Into, field: Field) -> str | None:
    if not field.required or field.has_default:
        return None
    return f"{into.class_name}.{field.name} is required, and the result has no such column"


BATCH_OPERATIONS: Final = 500


@dataclass(frozen=True)
class ClassSink:
    """Writes results into classes from the thread of a run, by a data plane on an event loop."""

    _plane: DataPlane
    _loop: asyncio.AbstractEventLoop

    def check(self, into: Into, columns: Mapping[str, ColumnType]) -> None:
        """Check that a class exists, and that a result fits it.

        Raises:
            InputUnfit: No row with such columns can be an object of the class.
            MediatorError: The class cannot be looked up.
        """
        self._route(into, columns)

    def write(self, context: StageContext, result: str, into: Into, files: ResultFiles) -> None:
        """Write a result.

        Args:
            context: The context of the writing stage.
            result: The name of the result, unique, and equal in every attempt.
            into: The class of its rows, and the columns of their ids.
            files: The result.

        Raises:
            InputUnfit: The result no longer fits the class, two rows have the same id, or a row is
                not a valid object of the class.
            MediatorError: A system does not answer.
            RunCancelled: The run must end.
        """
        route = self._route(into, files.columns)
        _check_ids(context, into, files)
        writer = _Rows(result, into, route, files.schema.names)
        done = 0
        for rows in _in_batches(files.batches(files.schema.names)):
            answers = self._await(self._plane.batch([writer.operation(row) for row in rows]))
            for answer in answers:
                if isinstance(answer, MediatorError):
                    raise answer
            done += len(rows)
            context.count("written", len(rows))
            context.progress(done, files.rows)

    def _route(self, into: Into, columns: Mapping[str, ColumnType]) -> ClassRoute:
        try:
            route: ClassRoute = self._await(self._plane.route(into.database, into.class_name))
        except (NotFound, AdvisoryOnly) as error:
            raise InputUnfit(f"The result cannot be written: {error.detail}") from None
        if mistakes := misfits(into, columns, route.schema):
            reasons = "; ".join(location.detail for location in mistakes)
            raise InputUnfit(f"The result cannot be written: {reasons}.")
        return route

    def _await(self, call: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()


class _Rows:
    def __init__(self, result: str, into: Into, route: ClassRoute, columns: Sequence[str]) -> None:
        self._result = result
        self._into = into
        self._codec = route.codec
        self._fields = [name for name in columns if name in route.schema.fields]

    def operation(self, row: dict[str, Any]) -> Operation:
        id_ = _id_of(row, self._into)
        body = {name: row[name] for name in self._fields if row[name] is not None}
        try:
            check_id(id_, "id")
            values = self._codec.decode_object(body)
        except Invalid as error:
            raise InputUnfit(f"A row of the result is not a valid object: {error.detail}") from None
        # The same name in every attempt, so that a store does not apply the write twice.
        name = blake2b(f"{self._result}\n{id_}".encode(), digest_size=16).hexdigest()
        database, class_name = self._into.database, self._into.class_name
        return Put(database, class_name, id_, name, fingerprint=self._result, values=values)


def _id_of(row: Mapping[str, Any], into: Into) -> str:
    return ",".join("" if row[name] is None else str(row[name]) for name in into.id)


def _check_ids(context: StageContext, into: Into, files: ResultFiles) -> None:
    """Refuse a result with duplicate ids: only one of the rows would become an object."""
    total = files.rows

    def ids() -> Iterator[str]:
        for rows in files.batches(into.id):
            context.progress(0, total)
            yield from (_id_of(row, into) for row in rows)

    if (duplicate := duplicate_text(ids)) is not None:
        columns = ", ".join(into.id)
        raise InputUnfit(
            f"The result cannot be written: two rows have the id {duplicate!r}, made of {columns}."
        )


def _in_batches(batches: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    for rows in batches:
        yield from (
            rows[first : first + BATCH_OPERATIONS]
            for first in range(0, len(rows), BATCH_OPERATIONS)
        )
