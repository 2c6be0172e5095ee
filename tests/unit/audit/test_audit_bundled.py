"""The audit of jars, of servers in wheels, and of modules of Go."""

from __future__ import annotations

import json
import os
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from typer.testing import CliRunner

from audit import bundled, go_modules, vulnerabilities
from audit.bundled import STALE_AFTER, assess_bundled, audit_bundled, read_list
from audit.go_modules import assess_go, audit_go
from audit.outcome import Outcome

ROOT = Path(__file__).parents[3]
TODAY = date(2026, 11, 23)
LIST = """
looked_at = 2026-11-23
[[fixed]]
name = "netty-*"
versions = ["4.2.17"]
source = "GHSA-1"
[[fixed]]
name = "postgresql"
versions = ["16.15", "18.6"]
source = "CVE-1"
accepted = ["18.4"]
reason = "nobody gets in"
until = 2027-01-31
[[fixed]]
name = "quiet"
versions = []
source = "its releases"
"""


def assess_pairs(*pairs: tuple[str, str], today: date = TODAY) -> Outcome:
    return assess_bundled(pairs, read_list(LIST), today)


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("netty-codec-base", "4.2.17.Final"),
        ("netty-buffer", "4.10.0.Final"),
        ("netty-buffer", "5.0.0"),
        ("postgresql", "16.15"),
        ("postgresql", "18.10"),
        ("postgresql", "18.4"),
        ("quiet", "0.1"),
    ],
)
def test_a_version_with_its_fixes_passes(name: str, version: str) -> None:
    outcome = assess_pairs((name, version))
    assert outcome.passes(strict=True)
    assert "nothing is known against them" in outcome.lines[0]


@pytest.mark.parametrize(
    ("name", "version", "output"),
    [
        ("netty-handler", "4.2.9.Final", "netty-handler 4.2.9.Final: fixed in 4.2.17 (GHSA-1)"),
        ("netty-handler", "4.1.200.Final", "fixed in 4.2.17"),
        ("netty-handler", "3.0.0", "fixed in 4.2.17"),
        ("postgresql", "16.14", "fixed in 16.15 (CVE-1)"),
        ("postgresql", "17.99", "fixed in 18.6"),
        ("postgresql", "18.3", "fixed in 18.6"),
    ],
)
def test_a_version_that_lacks_a_fix_fails(name: str, version: str, output: str) -> None:
    outcome = assess_pairs((name, version))
    assert not outcome.passes(strict=False)
    assert output in outcome.wrong[0]
    assert "care is needed" in outcome.lines[0]


def test_an_exception_expires() -> None:
    assert assess_pairs(("postgresql", "18.4"), today=date(2027, 1, 31)).wrong == ()
    [line] = assess_pairs(("postgresql", "18.4"), today=date(2027, 2, 1)).wrong
    assert "accepted until 2027-01-31" in line


def test_an_unreviewed_or_outdated_entry_fails_only_if_strict() -> None:
    unlisted = assess_pairs(("stranger", "1.0"))
    outdated = assess_pairs(("quiet", "1.0"), today=TODAY + STALE_AFTER + timedelta(days=1))
    for outcome, output in ((unlisted, "nothing is written of stranger"), (outdated, "2026-11-23")):
        assert outcome.passes(strict=False)
        assert not outcome.passes(strict=True)
        assert output in outcome.lines[-1]
        assert "not all could be looked up" in outcome.lines[0]
    assert assess_pairs(("quiet", "1.0"), today=TODAY + STALE_AFTER).passes(strict=True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "looked_at = 2026-11-23",
        'looked_at = 2026-11-23\n[[fixed]]\nname = "x"',
        LIST.replace('reason = "nobody gets in"', ""),
        LIST.replace("accepted", "excepted"),
        LIST.replace("versions = []", ""),
    ],
)
def test_an_incomplete_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"fixed\.toml"):
        read_list(text)


def test_every_jar_and_server_that_is_used_is_on_our_list() -> None:
    fixes = read_list(bundled.LIST.read_text())
    outcome = audit_bundled(ROOT, fixes.looked_at)
    assert outcome.passes(strict=True), outcome.lines
    names = {name for name, _ in (*bundled.jars_in(ROOT), *bundled.bundled_servers())}
    assert {"h2", "netty-handler", "valkey", "postgresql"} <= names


def message(**members: Any) -> str:
    return json.dumps(members, indent=2)


DATABASE = message(config={"db": "https://vuln.example"})
FINDING = {
    "osv": "GO-2026-1",
    "fixed_version": "v0.56.0",
    "trace": [{"module": "golang.org/x/crypto", "version": "v0.42.0"}],
}


def test_findings_of_go_are_reported_once() -> None:
    finding = message(finding=FINDING)
    outcome = assess_go("\n".join([DATABASE, message(progress={}), finding, finding]))
    assert outcome.wrong == ("golang.org/x/crypto v0.42.0: GO-2026-1, fixed in v0.56.0",)
    assert assess_go(DATABASE).passes(strict=True)


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("echo no such host >&2; echo exit status 1 >&2; exit 1", "no such host"),
        ("exit 1", "it failed"),
        ("echo '<html>'", "cannot be read"),
        ("echo '[]'", "cannot be read"),
        ("echo '{}'", "names no database"),
        ("sleep 60", "took longer"),
    ],
)
def test_a_failed_audit_of_go_is_reported_as_unknown(
    script: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    go.write_text(f"#!/bin/sh\n{script}\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(go_modules, "WITHIN_S", 2 if "sleep" in script else 60)
    outcome = audit_go(ROOT)
    assert output in outcome.unknown[0]
    assert outcome.passes(strict=False)
    assert not outcome.passes(strict=True)


def test_without_go_its_modules_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert audit_go(ROOT).unknown == ("go is not installed",)


@pytest.mark.parametrize(("arguments", "status"), [([], 0), (["--strict"], 1)])
def test_a_strict_audit_fails_if_something_could_not_be_audited(
    arguments: list[str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vulnerabilities, "PIP_AUDIT", ("-c", "print('<html>')"))
    monkeypatch.setattr(vulnerabilities, "audit_go", lambda _: Outcome("Modules of Go"))
    monkeypatch.setattr(vulnerabilities, "audit_bundled", lambda *_: Outcome("Jars"))
    app = typer.Typer()
    app.command()(vulnerabilities.main)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == status
    assert "were not audited" in result.output


KNOWN: Final = {"name": "known", "version": "1", "vulns": []}
UNKNOWN: Final = {"name": "unknown", "skip_reason": "nobody knows it"}
GOOD, WRONG, UNAUDITED = Outcome(""), Outcome("", wrong=("it is",)), Outcome("", unknown=("why",))


@pytest.mark.parametrize(
    ("bundled", "go", "locks", "lenient", "strict"),
    [
        (GOOD, GOOD, [KNOWN], 0, 0),
        (WRONG, GOOD, [KNOWN], 1, 1),
        (UNAUDITED, GOOD, [KNOWN], 0, 1),
        (GOOD, WRONG, [KNOWN], 0, 1),
        (GOOD, UNAUDITED, [KNOWN], 0, 1),
        (GOOD, GOOD, [KNOWN, UNKNOWN], 0, 1),
    ],
)
def test_the_status_of_an_audit_is_its_worst_result(
    bundled: Outcome,
    go: Outcome,
    locks: list[dict[str, object]],
    lenient: int,
    strict: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report = f"import json; print(json.dumps({ ({'dependencies': locks})!r}))"
    monkeypatch.setattr(vulnerabilities, "PIP_AUDIT", ("-c", report))
    monkeypatch.setattr(vulnerabilities, "read_reviewed", lambda _: [])
    monkeypatch.setattr(vulnerabilities, "audit_go", lambda _: go)
    monkeypatch.setattr(vulnerabilities, "audit_bundled", lambda *_: bundled)
    app = typer.Typer()
    app.command()(vulnerabilities.main)
    assert CliRunner().invoke(app, []).exit_code == lenient
    assert CliRunner().invoke(app, ["--strict"]).exit_code == strict
