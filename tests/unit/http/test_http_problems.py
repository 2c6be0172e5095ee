"""Every error has its problem, and every problem its documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.http.problems import INTERNAL, INVALID, PROBLEM_TYPES, HttpError, problem_of
from mediator.base import errors
from mediator.base.errors import Location, MediatorError

DOCUMENT = Path(__file__).parents[3] / "docs" / "problems.md"
ERRORS = [
    getattr(errors, name)
    for name in errors.__all__
    if name not in {"Location", "MediatorError", "PortolanError"}
]


def _make(kind: type[MediatorError]) -> MediatorError:
    if issubclass(kind, errors.Unavailable):
        return kind("gone", system="redis", retry_after_s=2.4)
    if kind in {errors.TooManyRequests, errors.Unauthenticated}:
        return kind("wrong")
    if issubclass(kind, errors.NotUnique):
        return kind("wrong", holder="a1", locations=[Location("/a", "is wrong")])
    return kind("wrong", locations=[Location("/a", "is wrong")], extra={"plan": [1]})


@pytest.mark.parametrize("kind", ERRORS)
def test_every_mediator_error_has_its_own_type(kind: type[MediatorError]) -> None:
    problem = problem_of(_make(kind))
    assert problem.type in PROBLEM_TYPES
    assert problem.type is not INTERNAL
    document = problem.document("request-1")
    assert {"type", "title", "status", "detail", "instance"} <= document.keys()
    assert document["type"] == f"/problems/{problem.type.slug}"


def test_no_two_errors_share_a_type() -> None:
    assert len({problem_of(_make(kind)).type for kind in ERRORS}) == len(ERRORS)


def test_members_of_a_problem() -> None:
    document = problem_of(_make(errors.DataWouldMove)).document()
    assert document["errors"] == [{"pointer": "/a", "detail": "is wrong"}]
    assert document["plan"] == [1]
    assert "instance" not in document


def test_extra_members_never_replace_those_of_the_standard() -> None:
    error = HttpError(INVALID, "wrong", extra={"status": 200, "type": "x"})
    document = problem_of(error).document()
    assert (document["status"], document["type"]) == (400, "/problems/invalid")


def test_unavailable_has_a_retry_after() -> None:
    assert problem_of(_make(errors.Unavailable)).headers == (("Retry-After", "2"),)


def test_an_unexpected_error_reveals_nothing() -> None:
    problem = problem_of(RuntimeError("redis://user:secret@host"))
    assert problem.type is INTERNAL
    assert b"secret" not in problem.body("r")


def test_every_type_is_documented_with_its_status() -> None:
    documented = re.findall(
        r"^### `(?P<slug>[a-z-]+)` · (\d{3})", DOCUMENT.read_text(), re.MULTILINE
    )
    assert documented == [(kind.slug, str(kind.status)) for kind in PROBLEM_TYPES]
