"""The Prefer header field (RFC 7240)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from app.http.problems import INVALID, HttpError
from mediator.base.errors import Location

__all__ = ["NO_PREFERENCES", "PREFERENCES", "Preferences", "parse_prefer"]

_MAX_CHARACTERS: Final = 4_096
"""Characters of a list; a position takes up to half of them."""

_ITEM = re.compile(
    # Possessive quantifiers: spaces around an empty value would otherwise cause backtracking over
    # every split.
    r"""\s*+([!#$%&'*+.^_`|~\w-]++)(?:\s*+=\s*+("(?:[^"\\]|\\.)*+"|[^\s,;"]*+))?"""
    r"""\s*+(?:;[^,]*+)?(?:,|$)""",
    re.ASCII,
)
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", re.ASCII)
_POSITION = re.compile(r"[A-Za-z0-9_-]{1,2048}", re.ASCII)

_CONSISTENCIES: Final[dict[str, Literal["strong", "bounded"]]] = {
    "strong": "strong",
    "bounded": "bounded",
}

PREFERENCES: Final[dict[str, Callable[[str], object]]] = {
    "return": {"minimal", "representation"}.__contains__,
    "handling": {"strict", "lenient"}.__contains__,
    "consistency": _CONSISTENCIES.__contains__,
    "max-staleness": _SECONDS.fullmatch,
    "at-least": _POSITION.fullmatch,
}
"""Predicates for the values of each preference."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """The preferences of a request.

    Attributes:
        minimal: Return no representation after a write.
        representation: Return the whole object after a write, not only the fields that it touched.
        consistency: Read from the systems (strong), or from the view (bounded).
        at_least: A position that the answer must include.
        applied: The value of Preference-Applied; empty if no preference was applied.
        applied_in_part: The same for an answer that omits part of the object.
    """

    minimal: bool = False
    representation: bool = False
    consistency: Literal["strong", "bounded"] | None = None
    max_staleness_s: float | None = None
    at_least: str | None = None
    applied: str = ""
    applied_in_part: str = ""


NO_PREFERENCES = Preferences()


@lru_cache(maxsize=256)
def parse_prefer(value: str) -> Preferences:
    """Parse Prefer; unknown preferences are ignored, as section 2 demands.

    Requested freshness is always met: if the view is too stale for a read, the systems answer it.
    With ``handling=strict``, a known preference with an invalid value is refused.

    Raises:
        HttpError: A preference is refused, or the list has more than 4,096 characters.
    """
    if len(value) > _MAX_CHARACTERS:
        locations = [Location("Prefer", f"at most {_MAX_CHARACTERS} characters are expected")]
        raise HttpError(INVALID, "There are too many preferences.", locations=locations)
    preferences = _preferences(value)
    known = {name: choice for name, choice in preferences.items() if name in PREFERENCES}
    valid = {name: choice for name, choice in known.items() if PREFERENCES[name](choice)}
    invalid = sorted(known.keys() - valid.keys())
    if invalid and valid.get("handling") == "strict":
        locations = [Location("Prefer", f"{name} cannot have this value") for name in invalid]
        raise HttpError(
            INVALID, "A preference has a value that it cannot have.", locations=locations
        )
    applied = [f"{name}={choice}" for name, choice in valid.items()]
    applied_in_part = [choice for choice in applied if choice != "return=representation"]
    staleness = valid.get("max-staleness")
    return Preferences(
        minimal=valid.get("return") == "minimal",
        representation=valid.get("return") == "representation",
        consistency=_CONSISTENCIES.get(valid.get("consistency", "")),
        max_staleness_s=None if staleness is None else float(staleness),
        at_least=valid.get("at-least"),
        applied=", ".join(applied),
        applied_in_part=", ".join(applied_in_part),
    )


def _preferences(value: str) -> dict[str, str]:
    """Return the preferences; the first of a repeated name counts (section 2)."""
    preferences: dict[str, str] = {}
    at = 0
    while at < len(value) and (match := _ITEM.match(value, at)):
        text = match[2] or ""
        quoted = text.startswith('"')
        preferences.setdefault(match[1].lower(), text[1:-1].replace("\\", "") if quoted else text)
        at = match.end()
    return preferences
