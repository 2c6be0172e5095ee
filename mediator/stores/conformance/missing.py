"""A stored null, a missing field and an empty value are three different things."""

from __future__ import annotations

from mediator.schema.tree import Field
from mediator.schema.types import FieldType, Value
from mediator.stores.conformance.check import Theme
from mediator.stores.conformance.expect import applied, present, same
from mediator.stores.conformance.samples import counter, plain, text
from mediator.stores.conformance.scratch import Scratch

__all__ = ["THEME"]

THEME = Theme("missing")

_EMPTY: dict[FieldType, Value] = {
    FieldType.STRING: "",
    FieldType.BINARY: b"",
    FieldType.DOCUMENT: {},
    FieldType.LIST: [],
    FieldType.SET: [],
    FieldType.MAP: {},
}


def _one_of_each() -> list[Field]:
    return [plain(type_, name=f"a_{type_}") for type_ in FieldType]


@THEME.proves("contract")
async def null_is_not_missing(scratch: Scratch) -> None:
    """For every type a null is read as null, and a missing field is absent."""
    fields = _one_of_each()
    subject = await scratch.subject(*fields)
    names = [field.name for field in fields]
    await subject.create("nulls", dict.fromkeys(names))
    await subject.create("missing")
    same(await subject.values("nulls"), dict.fromkeys(names), "a record of nulls")
    same(await subject.values("missing"), {}, "a record without fields")
    for name in names:
        same(await subject.values("nulls", name), {name: None}, f"sparse read of null {name}")
        same(await subject.values("missing", name), {}, f"sparse read of missing {name}")


@THEME.proves("contract")
async def empty_is_not_null(scratch: Scratch) -> None:
    """Empty strings, binaries, documents and collections are values."""
    subject = await scratch.subject(*(plain(type_, name=f"a_{type_}") for type_ in _EMPTY))
    empties = {f"a_{type_}": value for type_, value in _EMPTY.items()}
    await subject.create("empty", empties)
    same(await subject.values("empty"), empties, "a record of empty values")
    for name, value in empties.items():
        same(await subject.values("empty", name), {name: value}, f"sparse read of {name}")


@THEME.proves("contract")
async def null_value_and_missing_follow_each_other(scratch: Scratch) -> None:
    """An update turns a value to null, null to missing, missing to a value, of every type."""
    subject = await scratch.subject(*_one_of_each())
    full: dict[str, Value] = {f"a_{type_}": value for type_, value in _EMPTY.items()}
    nulls: dict[str, Value] = dict.fromkeys(full)
    await subject.create("x", full)
    applied(await subject.update("x", nulls), "values to null")
    same(await subject.values("x"), nulls, "after setting null")
    applied(await subject.update("x", unset=tuple(full)), "null to missing")
    same(await subject.values("x"), {}, "after unsetting")
    applied(await subject.update("x", unset=tuple(full)), "missing to missing")
    applied(await subject.update("x", full), "missing to values")
    same(await subject.values("x"), full, "after setting values again")
    applied(await subject.update("x", unset=tuple(full)), "values to missing")
    same(await subject.values("x"), {}, "after unsetting values")


@THEME.proves("contract")
async def sparse_reads_return_the_named_fields(scratch: Scratch) -> None:
    """A read of some fields returns those that are there, and all versions."""
    subject = await scratch.subject(counter("a"), counter("b"), text("c", group="side"), text("d"))
    await subject.create("x", {"a": 1, "b": None, "c": "see"})
    whole = present(await subject.read("x"), "the record")
    for names in (("a",), ("b", "d"), ("c",), ("a", "b", "c", "d")):
        record = present(await subject.read("x", *names), f"sparse read of {names}")
        expected = {name: whole.values[name] for name in names if name in whole.values}
        same(record.values, expected, f"sparse read of {names}")
        same(record.versions, whole.versions, f"versions with a sparse read of {names}")
        same(
            record.creation_version,
            whole.creation_version,
            f"creation_version with a sparse read of {names}",
        )


@THEME.proves("contract")
async def existence_alone_can_be_read(scratch: Scratch) -> None:
    """A read of no field at all finds the record, its versions, and no value."""
    subject = await scratch.subject(counter())
    versions = applied(await subject.create("x", {"n": 1})).versions
    whole, absent = await subject.read_all(["x", "y"], fields=())
    record = present(whole, "reading no field")
    same(record.values, {}, "values of a read of no field")
    same(record.versions, versions, "versions of a read of no field")
    same(absent, None, "an absent record")


@THEME.proves("contract")
async def returning_separates_null_from_missing(scratch: Scratch) -> None:
    """What a write returns has nulls, and leaves missing fields out."""
    subject = await scratch.subject(counter("a"), counter("b"), counter("c"))
    some = await subject.create("x", {"a": 1, "b": None}, returning=("b", "c"))
    same(applied(some).values, {"b": None}, "returning some")
    every = await subject.update("x", {"c": 3}, returning=())
    same(applied(every).values, {"a": 1, "b": None, "c": 3}, "returning all")
    none = await subject.update("x", {"c": 4})
    same(applied(none).values, {}, "returning nothing")
