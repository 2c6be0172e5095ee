"""Which of two states of an object is the newer one, as far as their tags tell (docs/data-api.md).

A tag names the version of each cache group, and versions only grow.
"""

from __future__ import annotations

import re

__all__ = ["is_newer"]

_TAG = re.compile(r'(?:W/)?"(j[0-9]{1,18})((?:\.[a-z0-9_]{1,128}:[0-9]{1,19})+)"', re.ASCII)


def is_newer(tag: str | None, than: str | None) -> bool | None:
    """Compare two tags of one resource.

    Returns:
        Whether the first names a newer state than the second, or the same; None if that cannot be
        told: of objects that are not there, of results of queries, under another schema.
    """
    if tag is None or than is None:
        return None
    if tag == than:
        return True
    first, second = _versions(tag), _versions(than)
    if first.keys() != second.keys() or not first:
        return None
    differ = {first[name] > second[name] for name in first if first[name] != second[name]}
    return differ.pop() if len(differ) == 1 else None


def _versions(tag: str) -> dict[str, int]:
    """Return the version of each group, by schema and group; nothing if the tag is none of ours."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return {}
    pairs = [partition.split(":") for partition in match[2][1:].split(".")]
    return {f"{match[1]}.{group}": int(version) for group, version in pairs}
