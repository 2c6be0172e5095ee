"""The audit of the dependencies, by the reports of a vulnerability service."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import orjson
import pytest

from audit import vulnerabilities
from audit.vulnerabilities import Reviewed, assess, audit_locks, read_reviewed

TODAY = date(2026, 7, 1)
VULNERABILITY = {"id": "PYSEC-1", "aliases": ["GHSA-1"], "fix_versions": ["1.1"], "description": ""}


def report_of(*packages: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(packages), "fixes": []}


def package(name: str, *vulnerabilities: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": list(vulnerabilities)}


def unknown(name: str) -> dict[str, Any]:
    return {"name": name, "skip_reason": "not found"}


def review(until: date = date(2026, 8, 1), name: str = "GHSA-1") -> Reviewed:
    return Reviewed(name, "leaky", "it is never called", until)


def test_dependencies_without_vulnerabilities_pass() -> None:
    report = assess(report_of(package("sound"), unknown("other")), [], TODAY)
    assert not report.wrong
    assert report.summary == (
        "Dependencies: no known vulnerability in 1 versions; the service does not know 1 others."
    )


def test_a_vulnerability_fails_unless_it_was_reviewed_under_any_of_its_names() -> None:
    leaky = report_of(package("leaky", VULNERABILITY))
    assert assess(leaky, [], TODAY).wrong == ("leaky 1.0: PYSEC-1, fixed in 1.1",)
    for name in ("PYSEC-1", "GHSA-1"):
        assert not assess(leaky, [review(name=name)], TODAY).wrong


def test_a_review_ends() -> None:
    [line] = assess(
        report_of(package("leaky", VULNERABILITY)), [review(date(2026, 6, 30))], TODAY
    ).wrong
    assert "its review ended on 2026-06-30" in line


def test_a_review_of_a_fixed_vulnerability_fails_where_the_package_is_known() -> None:
    [line] = assess(report_of(package("leaky")), [review()], TODAY).wrong
    assert "not found any more" in line
    assert not assess(report_of(unknown("leaky")), [review()], TODAY).wrong


def test_a_service_that_knows_no_dependency_is_reported_in_one_line() -> None:
    report = assess(report_of(unknown("a"), unknown("b")), [], TODAY)
    assert not report.wrong
    assert report.summary == "Dependencies were not audited: the service knew none of them."


def test_incomplete_reviews_are_refused() -> None:
    complete = 'reviewed = [{id = "X", package = "p", reason = "why", until = 2027-01-01}]'
    assert read_reviewed(complete) == [Reviewed("X", "p", "why", date(2027, 1, 1))]
    for broken in (
        "",
        complete.replace('reason = "why"', 'reason = ""'),
        complete.replace("id =", "i ="),
    ):
        with pytest.raises(ValueError, match=r"reviewed\.toml"):
            read_reviewed(broken)


# --- The whole audit: pip-audit itself, with a service that the test scripts.

LEAKY = b"leaky==1.0 --hash=sha256:" + b"0" * 64 + b"\n"
ADVISORIES = {
    "vulns": [
        {
            "id": "PYSEC-1",
            "summary": "it leaks",
            "affected": [
                {
                    "package": {"name": "leaky", "ecosystem": "PyPI"},
                    "ranges": [{"type": "ECOSYSTEM", "events": [{"fixed": "1.1"}]}],
                }
            ],
        }
    ]
}


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A vulnerability service that gives this answer to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def audit_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> int:
    (tmp_path / "requirements.lock").write_bytes(LEAKY)
    monkeypatch.setattr(vulnerabilities, "ROOT", tmp_path)
    command = (*vulnerabilities.PIP_AUDIT, "-s", "osv", "--osv-url", url)
    monkeypatch.setattr(vulnerabilities, "PIP_AUDIT", command)
    return 0 if audit_locks() else 1


@pytest.mark.parametrize(
    ("answer", "status", "output"),
    [
        (ADVISORIES, 1, "leaky 1.0: PYSEC-1, fixed in 1.1"),
        ({}, 0, "Dependencies: no known vulnerability in 1 versions."),
    ],
)
def test_a_pin_that_is_known_to_be_vulnerable_fails(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    answer: dict[str, Any],
    status: int,
    output: str,
) -> None:
    with answering(200, orjson.dumps(answer)) as url:
        assert audit_status(tmp_path, monkeypatch, url) == status
    assert output in capsys.readouterr().out


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>please log in</html>"), (200, b'{"vulns": 7}'), (503, b"")],
)
def test_an_unreadable_answer_is_reported_and_does_not_count_as_no_vulnerability(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: int,
    body: bytes,
) -> None:
    with answering(status, body) as url:
        assert audit_status(tmp_path, monkeypatch, url) == 0
    output = capsys.readouterr().out
    assert output.startswith("Dependencies were not audited: ")
    assert len(output.splitlines()) == 1
    assert "no known vulnerability" not in output


@pytest.mark.parametrize(
    "report", ["[]", "7", "{}", '{"dependencies": 7}', '{"dependencies": [{"name": "x"}]}', ""]
)
def test_a_report_of_another_form_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], report: str
) -> None:
    monkeypatch.setattr(vulnerabilities, "PIP_AUDIT", ("-c", f"print({report!r})"))
    assert audit_locks()
    assert not audit_locks(strict=True)
    assert capsys.readouterr().out.startswith("Dependencies were not audited: ")


def test_a_service_that_never_answers_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vulnerabilities, "PIP_AUDIT", ("-c", "import time; time.sleep(60)"))
    monkeypatch.setattr(vulnerabilities, "WITHIN_S", 0.1)
    assert audit_locks()
    assert not audit_locks(strict=True)
    assert "it took longer than 0.1 s" in capsys.readouterr().out
