"""The effect of schema changes on names: which field a name of a former version means now.

A name alone does not identify a field: fields are renamed, swap their names in several changes, or
are dropped, and another field gets the name. So each change records the fields that it renamed and
ended, and a version's names are followed from change to change.

Where a restored backup brings back the fields of a version, the changes since that version are
undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from mediator.schema.renames import Renames

__all__ = ["FieldNames", "NameChanges", "current_names", "effective_changes", "name_changes"]

NameChanges: TypeAlias = Mapping[str, Any]
"""As JSON: ``renamed``, new names of fields by class and former name; ``ended``, the classes and
fields (``class.field``) that were dropped, or whose name another type has taken; and perhaps
``restored``, the version whose classes and fields are restored."""

FieldNames: TypeAlias = dict[str, dict[str, str]]
"""The present names of fields, by class and their names in a version."""

_TYPE: Final = ("type", "items", "to")


def name_changes(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    renames: Renames,
    restored: int | None = None,
) -> NameChanges:
    """Compare two complete schemas; `renames` leads from the names of one to those of the other.

    `restored` is the version whose classes and fields are restored; None: no restoration.
    """
    ended = _ended(before.get("classes", {}), after["classes"], renames)
    renamed = {name: dict(names) for name, names in renames.items()}
    restoration = {} if restored is None else {"restored": restored}
    return {"renamed": renamed, "ended": [*ended], **restoration}


def _ended(before: Mapping[str, Any], after: Mapping[str, Any], renames: Renames) -> Iterator[str]:
    for class_name, class_ in before.items():
        if class_name not in after:
            yield class_name
            continue
        fields, names = after[class_name]["fields"], renames.get(class_name, {})
        for name, field in class_["fields"].items():
            new = fields.get(names.get(name, name))
            if new is None or any(field.get(member) != new.get(member) for member in _TYPE):
                yield f"{class_name}.{name}"


def effective_changes(
    version: int, changes: Sequence[NameChanges | None]
) -> tuple[NameChanges | None, ...]:
    """Return the changes that lead from a version to the present, without those that were undone.

    `changes` are all since that version, in their order; None: the effect of one is unknown.
    """
    paths: dict[int, tuple[NameChanges | None, ...]] = {version: ()}
    for number, change in enumerate(changes, version + 1):
        restored = (change or {}).get("restored")
        # For a version later than the restored one, a restoration is an ordinary change.
        paths[number] = paths[restored] if restored in paths else (*paths[number - 1], change)
    return paths[version + len(changes)]


def current_names(document: Mapping[str, Any], changes: Iterable[NameChanges]) -> FieldNames:
    """Return the present names of a schema's fields after all changes since, in their order.

    Ended ones are left out. The work is bounded by the fields of the schema and the changes.
    """
    names = {
        class_name: {name: name for name in class_["fields"]}
        for class_name, class_ in document["classes"].items()
    }
    for change in changes:
        ended = {*change["ended"]}
        for class_name in names.keys() & ended:
            del names[class_name]
        changed_classes = {*change["renamed"], *(node.partition(".")[0] for node in ended)}
        for class_name in names.keys() & changed_classes:
            renamed = change["renamed"].get(class_name, {})
            names[class_name] = {
                name: renamed.get(present, present)
                for name, present in names[class_name].items()
                if f"{class_name}.{present}" not in ended
            }
    return names
