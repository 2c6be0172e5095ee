"""Requests that go on where the one before ended, whatever the service does in between."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count
from typing import Any

import pytest

from app.commands import reconnection
from app.commands.reconnection import resume_hint, send_pages
from app.commands.service_client import ServiceRefused


class Service:
    """Answers requests as it was told, and notes where each began and what was counted."""

    def __init__(self, *answers: dict[str, Any] | ServiceRefused) -> None:
        self._answers: Iterator[dict[str, Any] | ServiceRefused] = iter(answers)
        self.begun: list[dict[str, str]] = []
        self.objects = 0

    def send(self, begin: dict[str, str]) -> dict[str, Any]:
        self.begun.append(begin)
        answer = next(self._answers)
        if isinstance(answer, ServiceRefused):
            raise answer
        return answer

    def goes_on(self, after: str | None) -> str:
        return resume_hint("f", after=after)

    def work(self, after: str | None = None) -> None:
        send_pages(self.send, self.count, after, self.goes_on)

    def count(self, answer: dict[str, Any]) -> str:
        self.objects += answer.get("objects", 0)
        return f"{self.objects} objects"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnection, "PAUSE_S", 0.0)


def test_it_ends_where_nothing_is_beyond() -> None:
    service = Service({"objects": 2, "next": "b"}, {"objects": 1, "next": None})
    service.work()
    assert (service.begun, service.objects) == ([{}, {"after": "b"}], 3)


def test_it_goes_on_once_the_service_answers_again() -> None:
    silent = ServiceRefused("silent", transient=True)
    late = ServiceRefused("late", transient=True, problem={"objects": 1, "next": "c"})
    service = Service({"objects": 2, "next": "b"}, silent, late, {"objects": 1, "next": None})
    service.work("a")
    assert [each["after"] for each in service.begun] == ["a", "b", "b", "c"]
    assert service.objects == 4


def test_a_refusal_that_is_final_says_how_to_go_on() -> None:
    refused = ServiceRefused("A rule is needed.", problem={"objects": 1, "next": "c"})
    service = Service({"objects": 2, "next": "b"}, refused)
    with pytest.raises(ServiceRefused, match=r"A rule is needed\. To go on: f --after c"):
        service.work()
    assert service.objects == 3
    silent = Service(ServiceRefused("silent", transient=True))
    with pytest.raises(ServiceRefused, match=r"^silent$"):
        silent.work()


def test_what_may_be_done_without_an_answer_says_how_to_go_on() -> None:
    lost = ServiceRefused("lost", transient=True, may_be_done=True)
    service = Service(lost, ServiceRefused("No."))
    with pytest.raises(ServiceRefused, match=r"^No\. To go on: f$"):
        service.work()
    assert service.begun == [{}, {}]


def test_what_goes_on_in_parts_is_never_waited_for_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each part begins the waits anew; two refusals without one between them end it."""
    monkeypatch.setattr(reconnection, "BUSY_S", 0.0)
    monkeypatch.setattr(reconnection, "monotonic", partial(next, count()))
    parts = [_busy(next_) for next_ in "bcd"]
    Service(*parts, {"next": None}).work("a")
    service = Service(*parts, _busy("d"))
    with pytest.raises(ServiceRefused, match=r"To go on: f --after d$"):
        service.work("a")


def _busy(next_: str) -> ServiceRefused:
    problem = {"objects": 1, "next": next_}
    return ServiceRefused("busy", transient=True, is_busy=True, problem=problem)
