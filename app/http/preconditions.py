"""Conditional requests (RFC 9110, section 13): header fields in, conditions out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.http.etags import parse_tag
from app.http.problems import INVALID, HttpError
from mediator.base.errors import Location, PreconditionFailed

__all__ = ["NO_PRECONDITIONS", "Preconditions", "Tags", "binding_versions", "parse_tags"]

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
        return self.any or any(tag == own.removeprefix("W/") for own in self.tags)


@dataclass(frozen=True, slots=True)
class Preconditions:
    """Both fields of a request. Dates are not served, so the date forms are ignored."""

    if_match: Tags | None = None
    if_none_match: Tags | None = None

    def not_modified(self, tag: str) -> bool:
        """Decide a GET or HEAD in the order of section 13.2.2.

        Returns:
            Whether to answer 304.

        Raises:
            PreconditionFailed: If-Match does not match.
        """
        if self.if_match is not None and not self.if_match.match_strongly(tag):
            raise PreconditionFailed("The object has another version than If-Match asks for.")
        return self.if_none_match is not None and self.if_none_match.match_weakly(tag)


NO_PRECONDITIONS = Preconditions()


def parse_tags(value: str, header: str) -> Tags:
    """Read a list of entity tags, or ``*``.

    Args:
        value: The value of the field.
        header: Its name, for the problem.

    Raises:
        HttpError: It is neither.
    """
    if value.strip() == "*":
        return Tags(any=True)
    tags, at = [], 0
    while match := _LIST.match(value, at):
        tags.append(match[1])
        at = match.end()
    if not tags or value[at:].strip(", \t"):
        detail = f"{header} is neither * nor a list of entity tags."
        raise HttpError(
            INVALID, detail, locations=[Location(header, "a quoted entity tag is expected")]
        )
    return Tags(tuple(tags))


def binding_versions(
    tags: Tags, groups: Sequence[str], schema_version: int
) -> tuple[Mapping[str, int | None], ...]:
    """Turn the tags of If-Match into versions, any one of which may hold.

    A tag binds only if it names exactly the groups of the resource at the present schema; one that
    does not can match no representation of the resource.
    """
    named = set(groups)
    parsed = [parse_tag(tag) for tag in tags.tags]
    return tuple(
        tag.versions
        for tag in parsed
        if tag and tag.schema_version == schema_version and tag.versions.keys() == named
    )
