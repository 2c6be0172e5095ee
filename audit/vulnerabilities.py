"""Whether a version that is installed somewhere has a vulnerability that is publicly known.

`python -m audit.vulnerabilities` asks pip-audit about every version of the lock files, holds jars
and the servers in wheels against a list (`bundled`), and ends with 1 for a vulnerability that
nobody has reviewed (`reviewed.toml`). Where the service that knows them does not answer, it says so
and ends with 0: a build without network is no worse than it was. With `--strict` it asks about the
chart's tools too (`go_modules`), and ends with 1 for all of which it could not learn anything.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Final

import orjson
import typer

from audit.bundled import audit_bundled
from audit.go_modules import audit_go

__all__ = ["Report", "Reviewed", "assess", "audit_locks", "read_reviewed"]

WITHIN_S: Final = 60
"""Seconds that the service has to answer for everything."""

ROOT: Final = Path(__file__).parent.parent
_LOCKS: Final = "requirements*.lock"
TRIED: Final = ("-m", "pip_audit", "--disable-pip", "--format=json", "--progress-spinner=off")


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A vulnerability that does not concern us, why, and until when that is believed."""

    id: str
    package: str
    reason: str
    until: date


@dataclass(frozen=True, slots=True)
class Report:
    """What was found.

    Attributes:
        looked_up: Versions that the service was asked for.
        known: Those that it knew.
        wrong: What is wrong, a line each.
    """

    looked_up: int
    known: int
    wrong: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return self.known == self.looked_up

    @property
    def summary(self) -> str:
        if self.wrong:
            return "Dependencies need care:\n" + "\n".join(self.wrong)
        if not self.known:
            return "Dependencies were not audited: the service knew none of them."
        left = self.looked_up - self.known
        unknown = f"; the service does not know {left} others" if left else ""
        return f"Dependencies: no known vulnerability in {self.known} versions{unknown}."


def assess(findings: Mapping[str, Any], reviewed: Iterable[Reviewed], today: date) -> Report:
    """Assess what pip-audit found.

    Args:
        findings: Its report, of format ``json``.
        reviewed: What does not concern us.
        today: The day.
    """
    left = {(entry.package, entry.id): entry for entry in reviewed}
    packages = findings["dependencies"]
    known = [package for package in packages if "skip_reason" not in package]
    wrong: list[str] = []
    for package in known:
        for vulnerability in package["vulns"]:
            names = (vulnerability["id"], *vulnerability["aliases"])
            met = [left.pop((package["name"], name), None) for name in names]
            entry = next((entry for entry in met if entry is not None), None)
            if entry is None or entry.until < today:
                wrong.append(_line(package, vulnerability, entry))
    if known:  # else nothing was found because nothing was looked up
        wrong += [f"{e.package}: {e.id} is reviewed, and not found any more" for e in left.values()]
    return Report(len(packages), len(known), tuple(wrong))


def _line(package: Mapping[str, Any], known: Mapping[str, Any], entry: Reviewed | None) -> str:
    fixed = ", ".join(known["fix_versions"]) or "none yet"
    review = "" if entry is None else f"; its review ended on {entry.until}"
    return f"{package['name']} {package['version']}: {known['id']}, fixed in {fixed}{review}"


def read_reviewed(text: str) -> list[Reviewed]:
    """Read the list of what was reviewed; raises `ValueError` if an entry lacks something."""
    try:
        entries = [Reviewed(**entry) for entry in tomllib.loads(text)["reviewed"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"reviewed.toml: {error}") from None
    if not all(entry.reason for entry in entries):
        raise ValueError("reviewed.toml: an entry has no reason")
    return entries


def _ask(locks: Sequence[Path]) -> Mapping[str, Any]:
    """Ask the service; raises `ConnectionError` if it does not answer."""
    files = [word for lock in locks for word in ("--requirement", str(lock))]
    command = [sys.executable, *TRIED, *files]
    try:
        done = subprocess.run(  # noqa: S603 - our own words and files
            command, capture_output=True, timeout=WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConnectionError(f"it took longer than {WITHIN_S} s") from None
    findings = _read(done.stdout)
    if findings is None:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise ConnectionError(said[-1] if said else "nothing was answered that could be read")
    return findings


def _read(printed: bytes) -> Mapping[str, Any] | None:
    """Return a report; None if it is none, or not of the form that is assessed."""
    try:
        findings: dict[str, Any] = orjson.loads(printed)
        for package in findings["dependencies"]:
            if "skip_reason" not in package:
                _ = (package["name"], package["version"], package["vulns"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return findings


def audit_locks(*, strict: bool = False) -> bool:
    """Audit the lock files, and print what it came to; returns whether that is good enough.

    Args:
        strict: Whether it is not where something could not be looked up.
    """
    reviewed = read_reviewed((Path(__file__).parent / "reviewed.toml").read_text())
    try:
        findings = _ask(sorted(ROOT.glob(_LOCKS)))
    except ConnectionError as error:
        typer.echo(f"Dependencies were not audited: {error}")
        return not strict
    report = assess(findings, reviewed, datetime.now(UTC).date())
    typer.echo(report.summary)
    return not report.wrong and (report.is_whole or not strict)


def main(
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 1 if something cannot be looked up.")
    ] = False,
) -> None:
    """Look for known vulnerabilities in what is installed anywhere."""
    outcomes = [audit_bundled(ROOT, datetime.now(UTC).date())]
    if strict:  # it takes minutes where nothing of it is there yet
        outcomes.append(audit_go(ROOT))
    for line in (line for outcome in outcomes for line in outcome.lines):
        typer.echo(line)
    good = [audit_locks(strict=strict), *(outcome.passes(strict=strict) for outcome in outcomes)]
    raise typer.Exit(0 if all(good) else 1)


if __name__ == "__main__":
    typer.run(main)
