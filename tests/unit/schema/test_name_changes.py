"""How schema changes affect names, and how names of former versions are resolved."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mediator.schema.name_changes import NameChanges, current_names, effective_changes, name_changes

NAMES = ("a", "b", "c", "d")


def schema(**classes: dict[str, str]) -> dict[str, Any]:
    """Return a schema with the given classes; each maps fields to types."""
    return {
        "classes": {
            name: {"fields": {field: {"type": type_} for field, type_ in fields.items()}}
            for name, fields in classes.items()
        }
    }


def goods_with(*names: str) -> dict[str, Any]:
    return schema(goods=dict.fromkeys(names, "integer"))


def test_removed_names_have_ended() -> None:
    before = schema(goods={"a": "integer", "b": "integer"}, carts={"a": "integer"})
    after = schema(goods={"a": "integer", "c": "integer"}, orders={})
    assert name_changes(before, after, {}) == {"renamed": {}, "ended": ["goods.b", "carts"]}


def test_renamed_fields_have_not_ended() -> None:
    changes = name_changes(goods_with("a", "b"), goods_with("c", "b"), {"goods": {"a": "c"}})
    assert changes == {"renamed": {"goods": {"a": "c"}}, "ended": []}


def test_a_change_of_type_ends_a_field_whether_renamed_or_not() -> None:
    assert name_changes(goods_with("a"), schema(goods={"a": "string"}), {})["ended"] == ["goods.a"]
    renames = {"goods": {"a": "b"}}
    assert name_changes(goods_with("a"), schema(goods={"b": "string"}), renames)["ended"] == [
        "goods.a"
    ]


def test_a_database_that_is_new_ends_nothing() -> None:
    assert name_changes({}, goods_with("a"), {}) == {"renamed": {}, "ended": []}


def test_a_restoration_undoes_the_changes_since() -> None:
    dropped, added, undone = (
        name_changes(goods_with("a", "b"), goods_with("b"), {}),
        name_changes(goods_with("b"), goods_with("a", "b"), {}),
        name_changes(goods_with("a", "b"), goods_with("a", "b"), {}, restored=1),
    )
    changes = [dropped, added, undone]
    assert effective_changes(1, changes) == ()
    assert effective_changes(2, changes[1:]) == (added, undone), (
        "a later version has only the changes after it"
    )
    later = name_changes(goods_with("a", "b"), goods_with("c", "b"), {"goods": {"a": "c"}})
    assert effective_changes(1, [*changes, later]) == (later,)
    names = current_names(goods_with("a", "b"), [later])
    assert names == {"goods": {"a": "c", "b": "b"}}
    assert effective_changes(1, [None, undone]) == (), "unknown changes were undone"
    assert effective_changes(1, [dropped, None]) == (dropped, None)


@given(st.data())
def test_names_lead_to_the_same_field(data: st.DataObject) -> None:
    """Each field has an identity that no order of changes alters."""
    fields = {name: index for index, name in enumerate(NAMES[:2])}
    first, version, changes, new = (
        dict(fields),
        goods_with(*fields),
        list[NameChanges](),
        len(fields),
    )
    all_fields = [first]
    for _ in range(data.draw(st.integers(0, 8))):
        before, free = dict(fields), [name for name in NAMES if name not in fields]
        renames, restored = {}, None
        match data.draw(st.sampled_from(["rename", "drop", "add", "restore"])):
            case "restore":
                restored = data.draw(st.integers(1, len(all_fields)))
                fields = dict(all_fields[restored - 1])
            case "rename" if fields and free:
                old = data.draw(st.sampled_from(sorted(fields)))
                target = data.draw(st.sampled_from(free))
                renames = {"goods": {old: target}}
                fields[target] = fields.pop(old)
            case "drop" if fields:
                del fields[data.draw(st.sampled_from(sorted(fields)))]
            case "add" if free:
                fields[data.draw(st.sampled_from(free))] = new
                new += 1
        changes.append(name_changes(goods_with(*before), goods_with(*fields), renames, restored))
        all_fields.append(dict(fields))
    present = {identity: name for name, identity in fields.items()}
    expected = {name: present[identity] for name, identity in first.items() if identity in present}
    known_changes = [change for change in effective_changes(1, changes) if change is not None]
    assert current_names(version, known_changes) == {"goods": expected}
