"""What an audit of the dependencies makes of what the service tells."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from audit.vulnerabilities import Reviewed, judge, read_reviewed

TODAY = date(2026, 7, 1)
HOLE = {"id": "PYSEC-1", "aliases": ["GHSA-1"], "fix_versions": ["1.1"], "description": ""}


def told(*packages: dict[str, Any]) -> dict[str, Any]:
    return {"dependencies": list(packages), "fixes": []}


def package(name: str, *vulnerabilities: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "version": "1.0", "vulns": list(vulnerabilities)}


def unknown(name: str) -> dict[str, Any]:
    return {"name": name, "skip_reason": "not found"}


def review(until: date = date(2026, 8, 1), name: str = "GHSA-1") -> Reviewed:
    return Reviewed(name, "leaky", "it is never called", until)


def test_what_is_known_and_sound_passes() -> None:
    report = judge(told(package("sound"), unknown("other")), [], TODAY)
    assert not report.wrong
    assert report.summary == (
        "Dependencies: no known vulnerability in 1 versions; the service does not know 1 others."
    )


def test_a_vulnerability_fails_unless_it_was_reviewed_under_any_of_its_names() -> None:
    leaky = told(package("leaky", HOLE))
    assert judge(leaky, [], TODAY).wrong == ("leaky 1.0: PYSEC-1, fixed in 1.1",)
    for name in ("PYSEC-1", "GHSA-1"):
        assert not judge(leaky, [review(name=name)], TODAY).wrong


def test_a_review_ends() -> None:
    [line] = judge(told(package("leaky", HOLE)), [review(date(2026, 6, 30))], TODAY).wrong
    assert "its review ended on 2026-06-30" in line


def test_a_review_of_what_is_gone_fails_where_something_was_looked_up() -> None:
    [line] = judge(told(package("leaky")), [review()], TODAY).wrong
    assert "not found any more" in line
    assert not judge(told(unknown("leaky")), [review()], TODAY).wrong


def test_a_service_that_knows_nothing_is_told_in_a_line() -> None:
    report = judge(told(unknown("a"), unknown("b")), [], TODAY)
    assert not report.wrong
    assert report.summary == "Dependencies were not audited: the service knew none of them."


def test_reviews_have_all_that_they_need() -> None:
    whole = 'reviewed = [{id = "X", package = "p", reason = "why", until = 2027-01-01}]'
    assert read_reviewed(whole) == [Reviewed("X", "p", "why", date(2027, 1, 1))]
    for broken in (
        "",
        whole.replace('reason = "why"', 'reason = ""'),
        whole.replace("id =", "i ="),
    ):
        with pytest.raises(ValueError, match=r"reviewed\.toml"):
            read_reviewed(broken)
