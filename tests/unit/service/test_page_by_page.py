"""Requests that resume where the previous one ended, whatever the service does in between."""

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
    """Answers requests as scripted, and records the start of each and the count of objects."""

    def __init__(self, *answers: dict[str, Any] | ServiceRefused) -> None:
        self._answers: Iterator[dict[str, Any] | ServiceRefused] = iter(answers)
        self.starts: list[dict[str, str]] = []
        self.objects = 0

    def send(self, start: dict[str, str]) -> dict[str, Any]:
        self.starts.append(start)
        answer = next(self._answers)
        if isinstance(answer, ServiceRefused):
            raise answer
        return answer

    def hint(self, after: str | None) -> str:
        return resume_hint("f", after=after)

    def run(self, after: str | None = None) -> None:
        send_pages(self.send, self.count, after, self.hint)

    def count(self, answer: dict[str, Any]) -> str:
        self.objects += answer.get("objects", 0)
        return f"{self.objects} objects"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnection, "PAUSE_S", 0.0)


def test_it_ends_after_the_last_page() -> None:
    service = Service({"objects": 2, "next": "b"}, {"objects": 1, "next": None})
    service.run()
    assert (service.starts, service.objects) == ([{}, {"after": "b"}], 3)


def test_it_goes_on_once_the_service_answers_again() -> None:
    silent = ServiceRefused("silent", transient=True)
    late = ServiceRefused("late", transient=True, problem={"objects": 1, "next": "c"})
    service = Service({"objects": 2, "next": "b"}, silent, late, {"objects": 1, "next": None})
    service.run("a")
    assert [start["after"] for start in service.starts] == ["a", "b", "b", "c"]
    assert service.objects == 4


def test_a_refusal_that_is_final_says_how_to_go_on() -> None:
    refused = ServiceRefused("A rule is needed.", problem={"objects": 1, "next": "c"})
    service = Service({"objects": 2, "next": "b"}, refused)
    with pytest.raises(ServiceRefused, match=r"A rule is needed\. To go on: f --after c"):
        service.run()
    assert service.objects == 3
    silent = Service(ServiceRefused("silent", transient=True))
    with pytest.raises(ServiceRefused, match=r"^silent$"):
        silent.run()


def test_a_request_that_may_be_done_says_how_to_go_on() -> None:
    lost = ServiceRefused("lost", transient=True, may_be_done=True)
    service = Service(lost, ServiceRefused("No."))
    with pytest.raises(ServiceRefused, match=r"^No\. To go on: f$"):
        service.run()
    assert service.starts == [{}, {}]


def test_a_request_that_progresses_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each page restarts the waiting time; two refusals in a row without one end it."""
    monkeypatch.setattr(reconnection, "BUSY_S", 0.0)
    monkeypatch.setattr(reconnection, "monotonic", partial(next, count()))
    pages = [_busy(next_) for next_ in "bcd"]
    Service(*pages, {"next": None}).run("a")
    service = Service(*pages, _busy("d"))
    with pytest.raises(ServiceRefused, match=r"To go on: f --after d$"):
        service.run("a")


def _busy(next_: str) -> ServiceRefused:
    problem = {"objects": 1, "next": next_}
    return ServiceRefused("busy", transient=True, is_busy=True, problem=problem)
