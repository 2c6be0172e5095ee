"""The tables and their names: one for each class, and three of ours in each namespace.

A row is a record or its tombstone (`_deleted` set, all fields null). Where a field's column is
null, `_nulls` says whether the field is null or missing. `_intent` and `_fences` say which writes
the record refuses (see `transactions` and `fencing`), `_redo` is the intent's redo record, `_joint`
the record's last joint write. Each unique constraint has a column for claims, with a unique index
(see `claims`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from typing import Any, Final, NamedTuple, TypeAlias

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.types import UserDefinedType

from mediator.schema.limits import ID_BYTES, INDEX_FIELDS
from mediator.schema.tree import Field
from mediator.schema.types import FieldType
from mediator.schema.unique import constraint_name
from mediator.stores.port import Fragment
from mediator.stores.postgres.codec import Codec, field_codec
from mediator.stores.postgres.paths import KINDS, at_path, kinds_of
from mediator.stores.postgres.sql import constant, number

__all__ = [
    "INDEXED_CHARACTERS",
    "NARROW",
    "NULLS",
    "TRUNCATED",
    "NamespaceTables",
    "RecordTable",
    "TableOf",
    "claim_index",
    "claim_name",
    "column_name",
    "element_key",
    "fit_identifier",
    "fragment_table",
    "index_name",
    "indexed_lengths",
    "namespace_tables",
    "rank",
    "retired_name",
    "sort_key",
    "table_name",
    "version_name",
]

_MAX_NAME_BYTES: Final = 63
"""NAMEDATALEN - 1: PostgreSQL truncates longer identifiers silently, so that they collide."""

_SYSTEM_COLUMNS: Final = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid", "id"})


def fit_identifier(name: str) -> str:
    """Return the name if it fits, else its beginning with 96 bits of its hash."""
    if len(name.encode()) <= _MAX_NAME_BYTES:
        return name
    head = name.encode()[:38].decode(errors="ignore")
    return f"{head}~{sha256(name.encode()).hexdigest()[:24]}"


def table_name(database: str, stored_as: str) -> str:
    return fit_identifier(f"{database}.{stored_as}")


def column_name(field: str) -> str:
    """Name the column of a field; it must not be the name of a system column."""
    return f"{field}." if field in _SYSTEM_COLUMNS else field


def version_name(group: str) -> str:
    return fit_identifier(f"_v.{group}")


def claim_name(constraint: str) -> str:
    """Name the column of the claims of a unique constraint."""
    return fit_identifier(f"_u.{constraint}")


def index_name(table: str, purpose: str) -> str:
    """Name an index of a table; indexes share the tables' name space, hence the ``~``."""
    return fit_identifier(f"{table}~{purpose}")


def claim_index(table: str, constraint: str) -> str:
    """Name the unique index of the claims of a constraint."""
    return index_name(table, claim_name(constraint))


def retired_name(field: str, schema_version: int) -> str:
    """Name the column that keeps the values of a field that was removed from the schema."""
    return fit_identifier(f"{field}.before.{schema_version}")


NULLS: Final = ARRAY(sa.Text())
_FILL = {"fillfactor": 80}
"""Room on each page, so that most updates stay on it and touch no index (heap-only tuples)."""

_ENTRY_BYTES: Final = 2_704
"""Maximum size of an entry of a B-tree, and of a GIN index, where an entry is an element."""

INDEXED_CHARACTERS: Final = 512
"""Up to 2,048 bytes of an entry, beside an id of up to 512."""

_COMPOUND_CHARACTERS: Final = INDEXED_CHARACTERS // INDEX_FIELDS
"""The same for each field of a compound index."""

NARROW: Final = "narrow"
"""In the `info` of an index that includes `_nulls`: the name of the same index without it.

If that exists, it is used instead: rows can have names of fields that were removed since.
"""

TRUNCATED: Final = "_truncated"
"""The function of each namespace that truncates the elements of an array."""


class _Xid8(UserDefinedType[Any]):
    """A transaction id that never wraps around."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


@dataclass(frozen=True, slots=True, eq=False)
class RecordTable:
    """The table of a fragment.

    Attributes:
        fragment: The fragment.
        namespace: The schema of the table.
        table: Its table.
        columns: The column of each field.
        versions: The version column of each group.
        codecs: The codec of each field.
        claims: The column of each unique constraint, by its name.
    """

    fragment: Fragment
    namespace: str
    table: sa.Table
    columns: Mapping[str, sa.Column[Any]]
    versions: Mapping[str, sa.Column[Any]]
    codecs: Mapping[str, Codec]
    claims: Mapping[str, sa.Column[Any]]

    @property
    def id(self) -> sa.Column[Any]:
        return self.table.c["id"]

    @property
    def live(self) -> sa.ColumnElement[bool]:
        """Whether a row is a record rather than a tombstone."""
        return self.table.c["_deleted"].is_(None)

    def aliased(self, name: str) -> RecordTable:
        """Return the table under an alias: a class can refer to itself."""
        table: Any = self.table.alias(name)
        columns = {field: table.c[column.name] for field, column in self.columns.items()}
        return replace(self, table=table, columns=columns)


TableOf: TypeAlias = Callable[[Fragment], RecordTable]
"""Finds the table of a fragment."""


class NamespaceTables(NamedTuple):
    """The tables of a namespace except record tables.

    Attributes:
        outbox: One row for each change, read in the order (xid, seq).
        operations: Remembered operations.
        classes: The fields of each class as last prepared.
    """

    outbox: sa.Table
    operations: sa.Table
    classes: sa.Table


def fragment_table(fragment: Fragment, namespace: str) -> RecordTable:
    """Describe the table of a fragment and its indexes."""
    codecs = {name: field_codec(field) for name, field in fragment.fields.items()}
    columns = {n: sa.Column(column_name(n), codec.type) for n, codec in codecs.items()}
    versions = {
        group: sa.Column(version_name(group), sa.BigInteger(), nullable=False, server_default="0")
        for group in fragment.groups
    }
    claims = {
        constraint: sa.Column(claim_name(constraint), sa.Text(collation="C"))
        for constraint in map(constraint_name, fragment.unique)
    }
    table = sa.Table(
        table_name(fragment.database, fragment.stored_as),
        sa.MetaData(schema=namespace),
        # First: a scan tests it in each row, and columns after texts have no fixed offset.
        sa.Column("_deleted", sa.DateTime(timezone=True)),
        sa.Column("id", sa.Text(collation="C"), primary_key=True),
        *versions.values(),
        sa.Column("_creation_version", sa.BigInteger(), nullable=False),
        sa.Column("_nulls", NULLS, nullable=False, server_default="{}"),
        sa.Column("_intent", sa.Text(collation="C")),
        sa.Column("_redo", sa.Text(collation="C")),
        sa.Column("_joint", sa.Text(collation="C")),
        sa.Column("_fences", JSONB()),
        *claims.values(),
        *columns.values(),
        postgresql_with=_FILL,
    )
    records = RecordTable(fragment, namespace, table, columns, versions, codecs, claims)
    _add_indexes(records)
    return records


def _add_indexes(records: RecordTable) -> None:
    table, deleted = records.table, records.table.c["_deleted"]
    sa.Index(index_name(table.name, "_deleted"), deleted, postgresql_where=deleted.is_not(None))
    for constraint, column in records.claims.items():
        name = claim_index(table.name, constraint)
        sa.Index(name, column, unique=True, postgresql_where=column.is_not(None))
    for names in records.fragment.ordered_indexes:
        _add_ordered_index(records, names)
    for name, field in records.fragment.fields.items():
        if field.has_element_index:
            key = element_key(field, records.columns[name], records.namespace)
            index = index_name(table.name, f"{name}~elements")
            sa.Index(index, key, postgresql_using="gin", postgresql_where=records.live)
        for keys, kind in product(field.indexed_keys, kinds_of(field)):
            _add_path_index(records, field, keys, kind)


_KEY_BYTES: Final = {
    FieldType.INTEGER: 8,
    FieldType.FLOAT: 8,
    FieldType.DECIMAL: 32,
    FieldType.BOOLEAN: 8,
    FieldType.TIMESTAMP: 8,
    FieldType.REFERENCE: ID_BYTES,
}
_ROUNDING: Final = 16
"""Overhead of a key in bytes: its rank, its length, and alignment."""

_NAME_BYTES: Final = 8
"""The same for a name in `_nulls`."""

_HEAD_BYTES: Final = 64
"""Overhead of an entry: the headers of the entry, the array and the id, and the null bitmap."""


def _has_room_for_nulls(fragment: Fragment, names: Sequence[str]) -> bool:
    """Whether an entry of an exact index has room for `_nulls` of any record.

    In the worst case it has the names of all fields, and the longest values of indexed fields.
    """
    keys = sum(_ROUNDING + _key_bytes(fragment.fields[name]) for name in names)
    nulls = sum(_NAME_BYTES + len(name.encode()) for name in fragment.fields)
    return _HEAD_BYTES + keys + ID_BYTES + nulls <= _ENTRY_BYTES


def _key_bytes(field: Field) -> int:
    """Return the size of the longest value of a field in an exact index."""
    if field.type is FieldType.STRING:
        return 4 * (field.max_length or 0)
    return _KEY_BYTES.get(field.type, field.max_length or 0)


def _add_ordered_index(records: RecordTable, names: tuple[str, ...]) -> None:
    """Index fields by rank and value, and by id unless a value is truncated."""
    table, max_characters = (
        records.table,
        INDEXED_CHARACTERS if len(names) == 1 else _COMPOUND_CHARACTERS,
    )
    elements: list[sa.ColumnElement[Any]] = []
    exact: dict[str, bool] = {}
    for name in names:
        column = records.columns[name]
        key = sort_key(records.fragment.fields[name], column, max_characters)
        elements += [rank(table, name, column), key]
        exact[name] = key is column
    purpose = ",".join(name if is_full else f"{name}~" for name, is_full in exact.items())
    is_exact = all(exact.values())
    # Ranks are computed from `_nulls`: including it permits index-only scans for counts.
    includes_nulls = is_exact and _has_room_for_nulls(records.fragment, names)
    # Another name, so that the index is rebuilt when the class gets too many fields for `_nulls`.
    narrow = index_name(table.name, f"{purpose}~keys")
    sa.Index(
        narrow if is_exact and not includes_nulls else index_name(table.name, purpose),
        *elements,
        *((records.id,) if is_exact else ()),
        postgresql_where=records.live,
        postgresql_include=[table.c["_nulls"]] if includes_nulls else [],
        info={NARROW: narrow} if includes_nulls else {},
    )


def _add_path_index(records: RecordTable, field: Field, keys: Sequence[str], kind: str) -> None:
    """Index the values of one kind at a path; rows without such a value have no entry.

    Equal values come in the order of ids, so that a page of them is read without a sort.
    """
    like, view = KINDS[kind]
    value = at_path(records.columns[field.name], map(constant, keys))
    key = sort_key(like, view(value))
    name = index_name(records.table.name, f"{'.'.join((field.name, *keys))}~{kind}")
    sa.Index(name, key, records.id, postgresql_where=sa.and_(records.live, key.is_not(None)))


def rank(table: Any, name: str, column: sa.ColumnElement[Any]) -> sa.ColumnElement[int]:
    """Order missing (0), null (1) and values (2); the SQL text must equal that of the index."""
    null = constant(name) == sa.any_(table.c["_nulls"])
    ranked = sa.case((column.is_not(None), number(2)), (null, number(1)), else_=number(0))
    return sa.cast(ranked, sa.Integer())  # an index takes no bare CASE


def indexed_lengths(fragment: Fragment, field: Field) -> list[int]:
    """Return the truncation lengths of a field (`sort_key`) in its own index and compound ones."""
    lengths = [INDEXED_CHARACTERS] if field.has_ordered_index else []
    is_compound = any(field.name in names for names in fragment.indexes)
    return [*lengths, _COMPOUND_CHARACTERS] if is_compound else lengths


def sort_key(
    field: Field, column: sa.ColumnElement[Any], max_characters: int = INDEXED_CHARACTERS
) -> sa.ColumnElement[Any]:
    """Return the indexed expression of a field: its column, or a prefix of long values.

    In the collation "C" and for bytea, the order of prefixes is consistent with that of values.
    """
    short = field.max_length is not None and field.max_length <= max_characters
    if field.type is FieldType.STRING and not short:
        return sa.func.left(column, number(max_characters), type_=column.type)
    if field.type is FieldType.BINARY and not short:
        return sa.func.substr(column, number(1), number(max_characters), type_=column.type)
    return column


def element_key(
    field: Field, array: sa.ColumnElement[Any], namespace: str
) -> sa.ColumnElement[Any]:
    """Return the indexed expression of an array: its elements, or prefixes of long ones."""
    if field.items not in (FieldType.STRING, FieldType.BINARY):
        return array
    truncated = getattr(getattr(sa.func, namespace), TRUNCATED)
    key: sa.ColumnElement[Any] = truncated(array, type_=array.type)
    return key


def namespace_tables(namespace: str) -> NamespaceTables:
    """Describe the tables of a namespace except record tables."""
    schema = sa.MetaData(schema=namespace)
    text, time = sa.Text(collation="C"), sa.DateTime(timezone=True)
    outbox = sa.Table(
        "_outbox",
        schema,
        sa.Column("xid", _Xid8(), primary_key=True, server_default=sa.func.pg_current_xact_id()),
        sa.Column("seq", sa.BigInteger(), sa.Identity(always=True, cache=1), primary_key=True),
        *(sa.Column(n, text, nullable=False) for n in ("change", "database", "class", "object")),
        sa.Column("group", text, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("kind", text, nullable=False),
        sa.Column("before", JSONB()),
        sa.Column("before_nulls", NULLS),
        sa.Column("after", JSONB()),
        sa.Column("after_nulls", NULLS),
        sa.Column("at", time, nullable=False),
    )
    operations = sa.Table(
        "_operations",
        schema,
        *(sa.Column(n, text, primary_key=True) for n in _OPERATION_KEY),
        sa.Column("fingerprint", text, nullable=False),
        sa.Column("created", sa.Boolean(), nullable=False),
        sa.Column("creation_version", sa.BigInteger(), nullable=False),
        *(sa.Column(n, JSONB(), nullable=False) for n in ("versions", "values")),
        sa.Column("nulls", NULLS, nullable=False),
        sa.Column("at", time, nullable=False, index=True),
    )
    classes = sa.Table(
        "_classes",
        schema,
        sa.Column("table", text, primary_key=True),
        sa.Column("fields", NULLS, nullable=False),
    )
    return NamespaceTables(outbox, operations, classes)


_OPERATION_KEY: Final = ("operation", "database", "class", "object")
