"""Checks installed versions for publicly known vulnerabilities.

`python -m audit.vulnerabilities` looks up every version of the lock files with pip-audit, compares
jars and the servers in wheels with a list (`bundled`), and exits with 1 for a vulnerability that is
not reviewed (`reviewed.toml`). If the service does not answer, it reports that and exits with 0: a
build without network is no worse than before. With `--strict` it also looks up the chart's tools
(`go_modules`), and exits with 1 if anything could not be looked up.
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
"""The time limit for all versions (seconds)."""

ROOT: Final = Path(__file__).parent.parent
_LOCKS: Final = "requirements*.lock"
PIP_AUDIT: Final = ("-m", "pip_audit", "--disable-pip", "--format=json", "--progress-spinner=off")


@dataclass(frozen=True, slots=True)
class Reviewed:
    """A vulnerability that does not concern Portolan, the reason, and the end of this review."""

    id: str
    package: str
    reason: str
    until: date


@dataclass(frozen=True, slots=True)
class Report:
    """The findings.

    Attributes:
        looked_up: Versions that were looked up.
        known: Versions that the service knew.
        wrong: The findings, a line each.
    """

    looked_up: int
    known: int
    wrong: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        return self.known == self.looked_up

    @property
    def summary(self) -> str:
        if self.wrong:
            return "Dependencies need care:\n" + "\n".join(self.wrong)
        if not self.known:
            return "Dependencies were not audited: the service knew none of them."
        unknown_count = self.looked_up - self.known
        unknown = f"; the service does not know {unknown_count} others" if unknown_count else ""
        return f"Dependencies: no known vulnerability in {self.known} versions{unknown}."


def assess(findings: Mapping[str, Any], reviewed: Iterable[Reviewed], today: date) -> Report:
    """Assess the report of pip-audit.

    Args:
        findings: The report, of format ``json``.
        reviewed: Vulnerabilities that do not concern Portolan.
        today: The day.
    """
    unmatched = {(entry.package, entry.id): entry for entry in reviewed}
    packages = findings["dependencies"]
    known_packages = [package for package in packages if "skip_reason" not in package]
    wrong: list[str] = []
    for package in known_packages:
        for vulnerability in package["vulns"]:
            names = (vulnerability["id"], *vulnerability["aliases"])
            entries = [unmatched.pop((package["name"], name), None) for name in names]
            entry = next((entry for entry in entries if entry is not None), None)
            if entry is None or entry.until < today:
                wrong.append(_line(package, vulnerability, entry))
    if known_packages:  # otherwise nothing was found because nothing was looked up
        wrong += [
            f"{e.package}: {e.id} is reviewed, and not found any more" for e in unmatched.values()
        ]
    return Report(len(packages), len(known_packages), tuple(wrong))


def _line(
    package: Mapping[str, Any], vulnerability: Mapping[str, Any], entry: Reviewed | None
) -> str:
    fixed = ", ".join(vulnerability["fix_versions"]) or "none yet"
    review = "" if entry is None else f"; its review ended on {entry.until}"
    return (
        f"{package['name']} {package['version']}: {vulnerability['id']}, fixed in {fixed}{review}"
    )


def read_reviewed(text: str) -> list[Reviewed]:
    """Read the list of reviews; raises `ValueError` if an entry lacks something."""
    try:
        entries = [Reviewed(**entry) for entry in tomllib.loads(text)["reviewed"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"reviewed.toml: {error}") from None
    if not all(entry.reason for entry in entries):
        raise ValueError("reviewed.toml: an entry has no reason")
    return entries


def _look_up(locks: Sequence[Path]) -> Mapping[str, Any]:
    """Look up versions at the service; raises `ConnectionError` if it does not answer."""
    files = [argument for lock in locks for argument in ("--requirement", str(lock))]
    command = [sys.executable, *PIP_AUDIT, *files]
    try:
        process = subprocess.run(  # noqa: S603 - our own arguments and files
            command, capture_output=True, timeout=WITHIN_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConnectionError(f"it took longer than {WITHIN_S} s") from None
    findings = _read(process.stdout)
    if findings is None:
        errors = process.stderr.decode(errors="replace").strip().splitlines()
        raise ConnectionError(errors[-1] if errors else "nothing was answered that could be read")
    return findings


def _read(output: bytes) -> Mapping[str, Any] | None:
    """Parse a report; None if the output has another form."""
    try:
        findings: dict[str, Any] = orjson.loads(output)
        for package in findings["dependencies"]:
            if "skip_reason" not in package:
                _ = (package["name"], package["version"], package["vulns"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return None
    return findings


def audit_locks(*, strict: bool = False) -> bool:
    """Audit the lock files, and print the outcome; return whether it passes.

    Args:
        strict: Whether it fails if something could not be looked up.
    """
    reviewed = read_reviewed((Path(__file__).parent / "reviewed.toml").read_text())
    try:
        findings = _look_up(sorted(ROOT.glob(_LOCKS)))
    except ConnectionError as error:
        typer.echo(f"Dependencies were not audited: {error}")
        return not strict
    report = assess(findings, reviewed, datetime.now(UTC).date())
    typer.echo(report.summary)
    return not report.wrong and (report.is_complete or not strict)


def main(
    *,
    strict: Annotated[
        bool, typer.Option("--strict", help="End with 1 if something cannot be looked up.")
    ] = False,
) -> None:
    """Look for known vulnerabilities in what is installed anywhere."""
    outcomes = [audit_bundled(ROOT, datetime.now(UTC).date())]
    if strict:  # it takes minutes where nothing is installed yet
        outcomes.append(audit_go(ROOT))
    for line in (line for outcome in outcomes for line in outcome.lines):
        typer.echo(line)
    passes = [audit_locks(strict=strict), *(outcome.passes(strict=strict) for outcome in outcomes)]
    raise typer.Exit(0 if all(passes) else 1)


if __name__ == "__main__":
    typer.run(main)
