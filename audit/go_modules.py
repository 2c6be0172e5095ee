"""Checks the Go modules of the chart's tools for known vulnerabilities."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from audit.outcome import Outcome

__all__ = ["assess_go", "audit_go"]

WITHIN_S: Final = 300
_ABOUT: Final = "Modules of Go"
_TOOLS: Final = Path("helm/tools")
_CHECK: Final = ("run", "golang.org/x/vuln/cmd/govulncheck@v1.9.0")
_ARGUMENTS: Final = ("-scan", "package", "-format", "json", "tool")
"""`tool` are the packages that go.mod names as tools. A scan of modules alone refuses a folder
without Go files; a scan of packages also names vulnerable modules."""

_DATABASE: Final = "https://vuln.go.dev"


def assess_go(output: str) -> Outcome:
    """Assess the output of govulncheck: a sequence of JSON objects.

    Raises:
        ValueError: It is not JSON, or names no database.
        TypeError: It is JSON of another form.
        LookupError: A member is missing.
    """
    messages = list(_messages(output))
    if not any(message.get("config", {}).get("db") for message in messages):
        raise ValueError("it names no database")
    findings = (message["finding"] for message in messages if "finding" in message)
    return Outcome(_ABOUT, tuple(sorted({_line(finding) for finding in findings})))


def _messages(output: str) -> Iterator[dict[str, Any]]:
    decoder, rest = json.JSONDecoder(), output.strip()
    while rest:
        message, end = decoder.raw_decode(rest)
        if not isinstance(message, dict):
            raise TypeError("it printed something else than objects")
        yield message
        rest = rest[end:].lstrip()


def _line(finding: dict[str, Any]) -> str:
    module = finding["trace"][0]
    fixed = finding.get("fixed_version", "none yet")
    return f"{module['module']} {module.get('version', '')}: {finding['osv']}, fixed in {fixed}"


def _reason(output: str) -> str:
    """Return the last line of the reason; `go run` adds the exit status."""
    lines = [line for line in output.strip().splitlines() if not line.startswith("exit status ")]
    return lines[-1].removeprefix("govulncheck: ") if lines else "it failed"


def audit_go(root: Path, database: str = _DATABASE) -> Outcome:
    """Query a database of vulnerabilities, by Go's own client.

    Args:
        root: The project's folder.
        database: URL of a database (https://go.dev/doc/security/vuln/database).
    """
    go = shutil.which("go")
    if go is None:
        return Outcome(_ABOUT, unknown=("go is not installed",))
    try:
        process = subprocess.run(  # noqa: S603 - our own arguments and files
            [go, *_CHECK, "-C", str(root / _TOOLS), "-db", database, *_ARGUMENTS],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=True,
        )
        return assess_go(process.stdout)
    except subprocess.TimeoutExpired:
        return Outcome(_ABOUT, unknown=(f"govulncheck took longer than {WITHIN_S} s",))
    except subprocess.CalledProcessError as error:
        return Outcome(_ABOUT, unknown=(f"govulncheck: {_reason(error.stderr)}",))
    except (ValueError, LookupError, TypeError) as error:
        return Outcome(_ABOUT, unknown=(f"govulncheck cannot be read: {error}",))
