"""Strong entity tags made of versions, and conditional requests (RFC 9110, sections 8.8.3, 13).

A tag names the media type (``j``: JSON), the version of the class's schema, and every cache group
of the resource with its version, or ``-`` if the group is absent::

    "j3.hits:1767225600000002.main:-"

For a request that is pinned to a version of the database's schema, say 7, it begins with ``j3~7``,
because field names, and thus the bytes, differ. Equal tags mean equal bytes: a group's version
changes with every write to it. A compressed body has different bytes, and its tag ends in ``-gzip``
(section 8.8.3.3); in a precondition, either tag names the version.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from app.http.problems import INVALID, HttpError
from mediator.base.errors import Location, PreconditionFailed
from mediator.schema.limits import INTEGER_MAX

__all__ = [
    "GZIP_END",
    "NO_PRECONDITIONS",
    "Preconditions",
    "Tags",
    "VersionTag",
    "binding_versions",
    "format_tag",
    "gzip_tag",
    "parse_tag",
    "parse_tags",
]

_TAG = re.compile(
    r'"j([0-9]{1,18})(?:~([0-9]{1,18}))?((?:\.[a-z0-9_]{1,128}:(?:[0-9]{1,19}|-))+)(?:-gzip)?"'
)

GZIP_END: Final = '-gzip"'
"""The end of the tag of a compressed representation."""

_LIST = re.compile(r'[ \t]*(?:,[ \t]*)*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?=,|$)', re.ASCII)


@dataclass(frozen=True, slots=True)
class Tags:
    """The value of If-Match or If-None-Match; `any` stands for ``*``."""

    tags: tuple[str, ...] = ()
    any: bool = False

    def match_strongly(self, tag: str) -> bool:
        """Compare for If-Match: weak tags never match (section 8.8.3.2)."""
        return self.any or tag in self.tags

    def match_weakly(self, tag: str) -> bool:
        """Compare for If-None-Match, where ``W/`` does not matter."""
        return self.any or any(tag == member.removeprefix("W/") for member in self.tags)


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Both fields of a request. Dates are not served, so the date forms are ignored."""

    if_match: Tags | None = None
    if_none_match: Tags | None = None

    def not_modified(self, tag: str) -> bool:
        """Decide in the order of section 13.2.2 whether a GET or HEAD is answered 304.

        Raises:
            PreconditionFailed: If-Match does not match.
        """
        if self.if_match is not None and not self.if_match.match_strongly(tag):
            raise PreconditionFailed("The object has another version than If-Match requires.")
        return self.if_none_match is not None and self.if_none_match.match_weakly(tag)


NO_PRECONDITIONS = Preconditions()


def gzip_tag(tag: str) -> str:
    """Return the tag of the gzip-compressed representation."""
    return tag[:-1] + GZIP_END


def parse_tags(value: str, header: str, *, codings: bool = True) -> Tags:
    """Parse a list of entity tags, or ``*``; a problem names `header`.

    With `codings` the tag of a compressed representation stands for its version; otherwise it
    matches nothing.
    """
    if value.strip() == "*":
        return Tags(any=True)
    tags, at = [], 0
    while match := _LIST.match(value, at):
        tags.append(match[1].replace(GZIP_END, '"') if codings else match[1])
        at = match.end()
    if not tags or value[at:].strip(", \t"):
        detail = f"{header} is neither * nor a list of entity tags."
        raise HttpError(
            INVALID, detail, locations=[Location(header, "a quoted entity tag is expected")]
        )
    return Tags(tuple(tags))


def binding_versions(
    tags: Tags, groups: Sequence[str], schema_version: int, pinned: int = 0
) -> tuple[Mapping[str, int | None], ...]:
    """Return the versions of If-Match's tags, any one of which suffices.

    A tag counts only if it names exactly the groups of the resource at the current schema; any
    other tag cannot match a representation of the resource.
    """
    group_names = set(groups)
    parsed = [parse_tag(tag) for tag in tags.tags]
    return tuple(
        tag.versions
        for tag in parsed
        if tag
        and (tag.schema_version, tag.pinned) == (schema_version, pinned)
        and tag.versions.keys() == group_names
    )


@dataclass(frozen=True, slots=True)
class VersionTag:
    """A parsed tag; `pinned` is the schema version that its request was pinned to, 0: none."""

    schema_version: int
    versions: Mapping[str, int | None]
    pinned: int = 0


def format_tag(
    schema_version: int,
    groups: Sequence[str],
    versions: Mapping[str, int | None],
    pinned: int = 0,
) -> str:
    """Format the tag of a resource; an absent group has None or is omitted."""
    parts = [f'"j{schema_version}~{pinned}' if pinned else f'"j{schema_version}']
    for group in groups:
        version = versions.get(group)
        parts.append(f"{group}:{'-' if version is None else version}")
    return ".".join(parts) + '"'


def parse_tag(tag: str) -> VersionTag | None:
    """Parse a tag; None if it is weak or was not made by `format_tag`."""
    match = _TAG.fullmatch(tag)
    if match is None:
        return None
    pairs = [part.split(":") for part in match[3][1:].split(".")]
    versions = {group: None if text == "-" else int(text) for group, text in pairs}
    # Stores cannot compare larger versions, and `format_tag` never produces them.
    exceeds = any((version or 0) > INTEGER_MAX for version in versions.values())
    if len(versions) != len(pairs) or exceeds:
        return None
    return VersionTag(int(match[1]), versions, int(match[2] or 0))
