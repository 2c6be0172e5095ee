"""Correspondences as a change of the right class: fields with the names of the left.

The patch is a merge patch of the schema, and the copies are arguments of `portolan schema copy`.
Instead of copies, use the renames as arguments of `portolan schema apply --rename`. A job that
reads the right table under the names of the left uses ``rename`` in its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["field_mapping"]

_FIELD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")


def field_mapping(
    class_name: str, pairs: Iterable[tuple[str, str]], types: Mapping[str, str]
) -> dict[str, Any]:
    """Return the patch, copies and renames for pairs of a left and a right field.

    Names on the right are those in the table, not their names in this job.

    Args:
        class_name: The class of the right.
        types: The schema types of the fields on the right, by name.
    """
    patch: dict[str, dict[str, str]] = {}
    rename: dict[str, str] = {}
    copies, skipped = [], []
    for left, right in pairs:
        if left == right:
            continue
        if left not in types and "id" not in (left, right):
            rename[right] = left
        if left in types or left in patch:
            skipped.append(f"{right}: there is another field {left} already")
        elif left == "id" or right not in types or not _FIELD.fullmatch(left):
            skipped.append(f"{right}: {left} cannot be the name of a field")
        else:
            patch[left] = {"type": types[right]}
            copies.append(f"{class_name}.{right}:{left}")
    return {
        "patch": {"classes": {class_name: {"fields": patch}}} if patch else {},
        "copies": copies,
        "renames": copies,
        "rename": rename,
        "skipped": skipped,
    }
