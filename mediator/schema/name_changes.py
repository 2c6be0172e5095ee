"""What changes of a schema do to names, and what a name of a former version means after them.

A name alone does not say which field is meant: fields are renamed, swap their names in several
changes, or are dropped, and another one gets the name. So each change is kept as what it renamed
and what it ended, and a version's names are followed from change to change.

Where a backup brings the fields of a version back, the changes since that version are undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mediator.schema.renames import Renames

__all__ = ["FieldNames", "NameChanges", "followed", "in_effect", "name_changes"]

NameChanges: TypeAlias = Mapping[str, Any]
"""As JSON: ``renamed``, new names of fields by class and former name; ``ended``, the classes
and fields (``class.field``) that left, or of which another type has taken the name; and perhaps
``restored``, the version whose classes and fields are there again."""

FieldNames: TypeAlias = dict[str, dict[str, str]]
"""The present names of fields, by class and the names that a version has for them."""

_TYPE: Final = ("type", "items", "to")


def name_changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    renames: Renames,
    restored: int | None = None,
) -> NameChanges:
    """Compare two complete schemas; `renames` leads from the names of one to those of the other.

    `restored` is the version whose classes and fields are there again; None: they go on.
    """
    ended = _ended(before.get("classes", {}), after["classes"], renames)
    renamed = {name: dict(names) for name, names in renames.items()}
    undone = {} if restored is None else {"restored": restored}
    return {"renamed": renamed, "ended": [*ended], **undone}


def _ended(before: Mapping[str, Any], after: Mapping[str, Any], renames: Renames) -> Iterator[str]:
    for class_name, class_ in before.items():
        if class_name not in after:
            yield class_name
            continue
        fields, names = after[class_name]["fields"], renames.get(class_name, {})
        for name, field in class_["fields"].items():
            now = fields.get(names.get(name, name))
            if now is None or any(field.get(member) != now.get(member) for member in _TYPE):
                yield f"{class_name}.{name}"


def in_effect(
    version: int, changes: Sequence[NameChanges | None]
) -> tuple[NameChanges | None, ...]:
    """Return what leads from a version to the present one, without what a restoration has undone.

    `changes` are all since that version, in their order; None: it is not known what one did.
    """
    led: dict[int, tuple[NameChanges | None, ...]] = {version: ()}
    for number, change in enumerate(changes, version + 1):
        restored = (change or {}).get("restored")
        # For a version that came later than the restored one, it is a change like any other.
        led[number] = led[restored] if restored in led else (*led[number - 1], change)
    return led[version + len(changes)]


def followed(document: Mapping[str, Any], changes: Iterable[NameChanges]) -> FieldNames:
    """Return what the names of a schema mean after all changes since, in their order.

    What has ended is left out. The work is bounded by the fields of the schema and the changes.
    """
    names = {
        class_name: {name: name for name in class_["fields"]}
        for class_name, class_ in document["classes"].items()
    }
    for change in changes:
        ended = {*change["ended"]}
        for class_name in names.keys() & ended:
            del names[class_name]
        touched = {*change["renamed"], *(node.partition(".")[0] for node in ended)}
        for class_name in names.keys() & touched:
            renamed = change["renamed"].get(class_name, {})
            names[class_name] = {
                name: renamed.get(now, now)
                for name, now in names[class_name].items()
                if f"{class_name}.{now}" not in ended
            }
    return names
