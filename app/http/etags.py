"""Strong entity tags made of versions (RFC 9110, section 8.8.3), and back again.

A tag names the media type (``j``: JSON), the version of the class's schema and every cache group of
the resource with its version, ``-`` where the group is absent::

    "j3.hits:1767225600000002.main:-"

Equal tags mean equal bytes: a group's version changes with every write to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mediator.schema.limits import INTEGER_MAX

__all__ = ["VersionTag", "format_tag", "parse_tag"]

_TAG = re.compile(r'"j([0-9]{1,18})((?:\.[a-z0-9_]{1,128}:(?:[0-9]{1,19}|-))+)"')


@dataclass(frozen=True, slots=True)
class VersionTag:
    """What a tag says."""

    schema_version: int
    versions: Mapping[str, int | None]


def format_tag(
    schema_version: int, groups: Sequence[str], versions: Mapping[str, int | None]
) -> str:
    """Print the tag of a resource.

    Args:
        schema_version: Version of the class's schema.
        groups: The groups of the resource, in order.
        versions: The version of each; absent groups have None or are left out.
    """
    parts = [f'"j{schema_version}']
    for group in groups:
        version = versions.get(group)
        parts.append(f"{group}:{'-' if version is None else version}")
    return ".".join(parts) + '"'


def parse_tag(tag: str) -> VersionTag | None:
    """Read a tag; None for weak ones and for those that we never printed."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return None
    pairs = [part.split(":") for part in match[2][1:].split(".")]
    versions = {group: None if text == "-" else int(text) for group, text in pairs}
    # No store counts further than that: what is above was never printed, and cannot be compared.
    beyond = any((version or 0) > INTEGER_MAX for version in versions.values())
    if len(versions) != len(pairs) or beyond:
        return None
    return VersionTag(int(match[1]), versions)
