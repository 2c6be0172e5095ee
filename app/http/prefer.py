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

_LONGEST: Final = 4_096
"""Characters of a list: a position takes half of them."""

_ITEM = re.compile(
    # No repetition gives back what it has matched: spaces on both sides of an empty value would be
    # divided between the two in every way.
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
"""Whether a value is one of a preference, by its name."""


@dataclass(frozen=True, slots=True)
class Preferences:
    """What the client would like.

    Attributes:
        minimal: No representation after a write.
        representation: That of the whole object after a write, not only of what it touched.
        consistency: As the systems hold it now, or from the view.
        at_least: A position that the answer must have reached.
        applied: The value of Preference-Applied; empty if nothing was.
        applied_in_part: The same for an answer that does not show the whole object.
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
    """Read Prefer; unknown preferences are ignored, as section 2 demands.

    What is requested of freshness always holds: a read that the view is not fresh enough for is
    answered by the systems themselves. A known preference with a wrong value is refused if
    ``handling=strict`` says so.

    Raises:
        HttpError: It is refused, or the list has more than 4,096 characters.
    """
    if len(value) > _LONGEST:
        locations = [Location("Prefer", f"at most {_LONGEST} characters are expected")]
        raise HttpError(INVALID, "There are too many preferences.", locations=locations)
    preferences = _preferences(value)
    known = {name: choice for name, choice in preferences.items() if name in PREFERENCES}
    good = {name: choice for name, choice in known.items() if PREFERENCES[name](choice)}
    wrong = sorted(known.keys() - good.keys())
    if wrong and good.get("handling") == "strict":
        locations = [Location("Prefer", f"{name} cannot have this value") for name in wrong]
        raise HttpError(
            INVALID, "A preference has a value that it cannot have.", locations=locations
        )
    applied = [f"{name}={choice}" for name, choice in good.items()]
    in_part = [choice for choice in applied if choice != "return=representation"]
    staleness = good.get("max-staleness")
    return Preferences(
        minimal=good.get("return") == "minimal",
        representation=good.get("return") == "representation",
        consistency=_CONSISTENCIES.get(good.get("consistency", "")),
        max_staleness_s=None if staleness is None else float(staleness),
        at_least=good.get("at-least"),
        applied=", ".join(applied),
        applied_in_part=", ".join(in_part),
    )


def _preferences(value: str) -> dict[str, str]:
    """List the preferences; the first of several with one name counts (section 2)."""
    preferences: dict[str, str] = {}
    at = 0
    while at < len(value) and (match := _ITEM.match(value, at)):
        text = match[2] or ""
        quoted = text.startswith('"')
        preferences.setdefault(match[1].lower(), text[1:-1].replace("\\", "") if quoted else text)
        at = match.end()
    return preferences
