"""What changes of a schema do to names, and what names of former versions mean."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mediator.schema.name_changes import NameChanges, followed, name_changes

NAMES = ("a", "b", "c", "d")


def schema(**classes: dict[str, str]) -> dict[str, Any]:
    """Return a schema: the types of the fields of classes."""
    return {
        "classes": {
            name: {"fields": {field: {"type": type_} for field, type_ in fields.items()}}
            for name, fields in classes.items()
        }
    }


def of(*names: str) -> dict[str, Any]:
    return schema(goods=dict.fromkeys(names, "integer"))


def test_what_leaves_has_ended() -> None:
    before = schema(goods={"a": "integer", "b": "integer"}, carts={"a": "integer"})
    after = schema(goods={"a": "integer", "c": "integer"}, orders={})
    assert name_changes(before, after, {}) == {"renamed": {}, "ended": ["goods.b", "carts"]}


def test_what_is_renamed_goes_on() -> None:
    changes = name_changes(of("a", "b"), of("c", "b"), {"goods": {"a": "c"}})
    assert changes == {"renamed": {"goods": {"a": "c"}}, "ended": []}


def test_another_type_ends_a_field_that_keeps_its_name_or_gets_one() -> None:
    assert name_changes(of("a"), schema(goods={"a": "string"}), {})["ended"] == ["goods.a"]
    renames = {"goods": {"a": "b"}}
    assert name_changes(of("a"), schema(goods={"b": "string"}), renames)["ended"] == ["goods.a"]


def test_a_database_that_is_new_ends_nothing() -> None:
    assert name_changes({}, of("a"), {}) == {"renamed": {}, "ended": []}


@given(st.data())
def test_names_lead_to_the_same_field(data: st.DataObject) -> None:
    """Each field has an identity, which any order of changes leaves alone."""
    fields = {name: index for index, name in enumerate(NAMES[:2])}
    first, version, changes, new = dict(fields), of(*fields), list[NameChanges](), len(fields)
    for _ in range(data.draw(st.integers(0, 8))):
        before, free = dict(fields), [name for name in NAMES if name not in fields]
        renames = {}
        match data.draw(st.sampled_from(["rename", "drop", "add"])):
            case "rename" if fields and free:
                old = data.draw(st.sampled_from(sorted(fields)))
                to = data.draw(st.sampled_from(free))
                renames = {"goods": {old: to}}
                fields[to] = fields.pop(old)
            case "drop" if fields:
                del fields[data.draw(st.sampled_from(sorted(fields)))]
            case "add" if free:
                fields[data.draw(st.sampled_from(free))] = new
                new += 1
        changes.append(name_changes(of(*before), of(*fields), renames))
    present = {identity: name for name, identity in fields.items()}
    expected = {name: present[identity] for name, identity in first.items() if identity in present}
    assert followed(version, changes) == {"goods": expected}
