"""Renames of fields: parsed, checked, and applied to a schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, TypeAlias

from mediator.base.errors import Invalid, Location
from mediator.base.suggestions import did_you_mean
from mediator.schema.ids import FIELD_NAME, NAME
from mediator.schema.limits import MAX_ERRORS
from mediator.schema.tree import ClassSchema, Schema

__all__ = ["Renames", "check_renames", "parse_renames", "renamed_document"]

_FORM: Final = re.compile(rf"({NAME.pattern})\.({FIELD_NAME.pattern}):({FIELD_NAME.pattern})")

Renames: TypeAlias = Mapping[str, Mapping[str, str]]
"""New names of fields, by class and former name."""


def parse_renames(texts: Iterable[str]) -> Renames:
    """Parse ``class.old:new``, each field once; raises `Invalid`."""
    renames: dict[str, dict[str, str]] = {}
    for text in texts:
        match = _FORM.fullmatch(text)
        if match is None:
            raise _invalid(["is written as class.old:new"])
        class_name, old, new = match.groups()
        if renames.setdefault(class_name, {}).setdefault(old, new) != new:
            raise _invalid([f"{class_name}.{old} would get two names"])
    return renames


def _invalid(reasons: Iterable[str]) -> Invalid:
    locations = [Location("rename", reason) for reason in reasons]
    return Invalid("Fields cannot be renamed.", locations=locations)


def check_renames(renames: Renames, before: Schema | None, after: Schema) -> None:
    """Raise `Invalid` unless old names leave the schema and new names are new to it.

    Another field of the class cannot take over a name: a replica that is one change behind would
    confuse the two.
    """
    former_classes = before.classes if before else {}
    mistakes = [
        *chain.from_iterable(
            _mistakes(name, renames[name], former_classes, after) for name in renames
        )
    ]
    if mistakes:
        raise _invalid(mistakes[:MAX_ERRORS])


def _mistakes(
    class_name: str,
    names: Mapping[str, str],
    former_classes: Mapping[str, ClassSchema],
    after: Schema,
) -> Iterator[str]:
    old_class, new_class = former_classes.get(class_name), after.classes.get(class_name)
    if old_class is None:
        yield f"there is no class {class_name}{did_you_mean(class_name, former_classes)}"
        return
    if new_class is None:
        yield f"the class {class_name} is not in the new schema"
        return
    for old, new in names.items():
        if old not in old_class.fields:
            hint = did_you_mean(old, old_class.fields)
            yield f"there is no field {class_name}.{old}{hint}"
        elif old in new_class.fields:
            yield f"{class_name}.{old} is in the new schema"
        elif new in old_class.fields:
            yield f"{class_name}.{new} is another field so far; give it another name first"
        elif new not in new_class.fields:
            hint = did_you_mean(new, new_class.fields)
            yield f"{class_name}.{new} is not in the new schema{hint}"
    if len(set(names.values())) < len(names):
        yield f"two fields of {class_name} would get one name"


def renamed_document(document: Mapping[str, Any], renames: Renames) -> dict[str, Any]:
    """Return a complete schema as if its fields had always had their new names."""
    classes = {
        name: _renamed_class(class_, renames.get(name, {}))
        for name, class_ in document.get("classes", {}).items()
    }
    return {**document, "classes": classes}


def _renamed_class(class_: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    fields = {names.get(name, name): field for name, field in class_["fields"].items()}
    owner = class_.get("owner_field")
    owner_member = {} if owner is None else {"owner_field": names.get(owner, owner)}
    unique = [_rename_fields(constraint, names) for constraint in class_.get("unique", ())]
    indexes = [
        {**index, "fields": _rename_fields(index["fields"], names)}
        for index in class_.get("indexes", ())
    ]
    return {**class_, "fields": fields, **owner_member, "unique": unique, "indexes": indexes}


def _rename_fields(fields: Iterable[str], names: Mapping[str, str]) -> list[str]:
    return [names.get(name, name) for name in fields]
