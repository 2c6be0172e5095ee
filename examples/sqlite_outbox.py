"""The outbox of the example: the change of each group, as rows beside the records.

A row is written in the transaction of its write, and writers lock one another out, so the numbers
of rows rise in the order in which writes took effect, which is the order of the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import orjson

from examples.stored_record import StoredRecord
from mediator.model.change import Change, change_id, kind_of
from mediator.schema.tagged import dump, load
from mediator.schema.types import Values
from mediator.stores.outboxes import image_of
from mediator.stores.port import Fragment, FragmentOf, LogEntry, Write, WriteKind

__all__ = ["OUTBOX", "Row", "log_entry", "position_of", "rows_of"]

OUTBOX: Final = """
CREATE TABLE IF NOT EXISTS outbox (
    number INTEGER PRIMARY KEY AUTOINCREMENT, time_us INTEGER, entry BLOB
)
"""
_DIGITS: Final = 20


class Row(NamedTuple):
    """An entry of the outbox: its time, and its change as JSON."""

    time_us: int
    entry: bytes


def position_of(number: int) -> str:
    """Return a position that sorts like its number."""
    return f"{number:0{_DIGITS}}"


def rows_of(call: Write, before: StoredRecord, after: StoredRecord, time_us: int) -> Iterator[Row]:
    """Yield the entries of a write that took effect: one for each group with a new version."""
    fragment = call.fragment
    for group in call.groups:
        field_names = _written_fields(call, group)
        entry = (
            (fragment.database_id, fragment.class_name, call.id, group, call.operation),
            (call.kind.name.lower(), after.versions[group]),
            _image(before, field_names),
            _image(after, field_names),
        )
        yield Row(time_us, orjson.dumps(entry))


def log_entry(number: int, time_us: int, entry: bytes, fragment_of: FragmentOf) -> LogEntry:
    """Decode an entry by the current schema; the change of a dropped class is None."""
    (database_id, class_name, id_, group, operation), (kind, version), *images = orjson.loads(entry)
    fragment = fragment_of(database_id, class_name)
    if fragment is None:
        return LogEntry(position_of(number), None, len(entry))
    before, after = (_decoded_image(fragment, image) for image in images)
    change = Change(
        change_id(operation, group), fragment.database, class_name, id_, group, version,
        kind_of(kind, absent=before is None), before, after, time_us, database_id,
    )  # fmt: skip
    return LogEntry(position_of(number), change, len(entry))


def _written_fields(call: Write, group: str) -> list[str]:
    names = call.fragment.groups[group]
    if call.kind is not WriteKind.UPDATE:
        return list(names)
    written = {*call.values, *call.unset, *(operator.field for operator in call.operators)}
    return [name for name in names if name in written]


def _image(record: StoredRecord, field_names: list[str]) -> Any:
    if not record.is_live:
        return None
    values: Values = {name: record.values[name] for name in field_names if name in record.values}
    return {name: dump(value) for name, value in values.items()}


def _decoded_image(fragment: Fragment, image: Any) -> dict[str, Any] | None:
    return (
        None if image is None else image_of(fragment, image.items(), lambda _, stored: load(stored))
    )
