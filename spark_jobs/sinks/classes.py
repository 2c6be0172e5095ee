"""Writing a result into a class through the mediator: guard, outbox and placement included.

The rows of a result never change once they are kept, and the operation of each is named by the
result and the object. So a run that is killed here and resumed writes the same again, and a store
that remembers the operation answers without applying it: what others wrote to the object in between
stays. A run whose kept files are gone has another result, with other names, and writes all of that.
A reader may see some of the objects before all are written.
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
from spark_jobs.sinks.doubled import doubled_text

__all__ = ["ClassSink", "misfits"]

_TAKES: Final[Mapping[FieldType, frozenset[ColumnType]]] = {
    FieldType.INTEGER: frozenset({"integer"}),
    FieldType.FLOAT: frozenset({"integer", "number"}),
    FieldType.BOOLEAN: frozenset({"boolean"}),
    FieldType.DOCUMENT: frozenset({"object"}),
    FieldType.MAP: frozenset({"object"}),
    FieldType.LIST: frozenset({"array"}),
    FieldType.SET: frozenset({"array"}),
}
_TEXT: Final[frozenset[ColumnType]] = frozenset({"string"})
"""What all other types of fields take; whether a string is a time, say, its value decides."""


def misfits(into: Into, columns: Mapping[str, ColumnType], schema: ClassSchema) -> list[Location]:
    """Say why no row of a result can become an object of a class, as it is now.

    Returns:
        Every mistake, with its location in the job; none if rows fit, as far as their types show.
    """
    there = ", ".join(columns)
    ids = (
        f"the result has no column {name} to make ids of; it has: {there}"
        for name in into.id
        if name not in columns
    )
    fields = (
        *(_reason(into, name, type_, schema) for name, type_ in columns.items()),
        *(_lacking(into, field) for name, field in schema.fields.items() if name not in columns),
    )
    return [
        *(Location("/into/id", reason) for reason in ids),
        *(Location("/into/class", reason) for reason in fields if reason is not None),
    ]


def _reason(into: Into, name: str, type_: ColumnType, schema: ClassSchema) -> str | None:
    field = schema.fields.get(name)
    if field is None:
        known = name in into.id  # such a column may be in the id alone
        return None if known else f"{into.class_name} has no field {name}, which the result has"
    if field.updated:
        return f"{into.class_name}.{name} is set by the service, and the result has it too"
    if type_ in _TAKES.get(field.type, _TEXT):
        return None
    return f"{into.class_name}.{name} is of type {field.type}, and the result has {type_} there"


def _lacking(into: Into, field: Field) -> str | None:
    if not field.required or field.has_default:
        return None
    return f"{into.class_name}.{field.name} is required, and the result has no such column"


AT_ONCE: Final = 500


@dataclass(frozen=True)
class ClassSink:
    """Writes results into classes, from the thread of a run, by a data plane on an event loop."""

    _plane: DataPlane
    _loop: asyncio.AbstractEventLoop

    def check(self, into: Into, columns: Mapping[str, ColumnType]) -> None:
        """Refuse a class that is missing, or that a result does not fit.

        Raises:
            InputUnfit: No row with such columns can be an object of the class.
            MediatorError: The class cannot be looked up.
        """
        self._route(into, columns)

    def write(self, context: StageContext, result: str, into: Into, files: ResultFiles) -> None:
        """Write a result.

        Args:
            context: Of the stage that writes.
            result: A name that no other result has, and this one in every attempt.
            into: Where its rows go, and which columns their ids are made of.
            files: The result.

        Raises:
            InputUnfit: The result does not fit the class any more, two rows have one id, or a row
                is no object of the class.
            MediatorError: A system does not answer.
            RunCancelled: The run is to end.
        """
        route = self._route(into, files.columns)
        _check_ids(context, into, files)
        writer = _Rows(result, into, route, files.schema.names)
        done = 0
        for rows in _in_parts(files.batches(files.schema.names)):
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
        if found := misfits(into, columns, route.schema):
            reasons = "; ".join(location.detail for location in found)
            raise InputUnfit(f"The result cannot be written: {reasons}.")
        return route

    def _await(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


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
            raise InputUnfit(f"A row of the result is no object: {error.detail}") from None
        # The same name in every attempt: a store that remembers it does not apply the write twice.
        name = blake2b(f"{self._result}\n{id_}".encode(), digest_size=16).hexdigest()
        database, class_name = self._into.database, self._into.class_name
        return Put(database, class_name, id_, name, fingerprint=self._result, values=values)


def _id_of(row: Mapping[str, Any], into: Into) -> str:
    return ",".join("" if row[name] is None else str(row[name]) for name in into.id)


def _check_ids(context: StageContext, into: Into, files: ResultFiles) -> None:
    """Refuse a result in which two rows have one id: only one of them would become an object."""
    total = files.rows

    def ids() -> Iterator[str]:
        for rows in files.batches(into.id):
            context.progress(0, total)
            yield from (_id_of(row, into) for row in rows)

    if (doubled := doubled_text(ids)) is not None:
        columns = ", ".join(into.id)
        raise InputUnfit(
            f"The result cannot be written: two rows have the id {doubled!r}, made of {columns}."
        )


def _in_parts(batches: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    for rows in batches:
        yield from (rows[first : first + AT_ONCE] for first in range(0, len(rows), AT_ONCE))
