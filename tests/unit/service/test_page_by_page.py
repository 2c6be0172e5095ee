"""Requests that go on where the one before ended, whatever the service does in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.commands import service_client
from app.commands.service_client import ServiceRefused, page_by_page


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

    def count(self, answer: dict[str, Any]) -> str:
        self.objects += answer.get("objects", 0)
        return f"{self.objects} objects"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_client, "PAUSE_S", 0.0)


def test_it_ends_where_nothing_is_beyond() -> None:
    service = Service({"objects": 2, "next": "b"}, {"objects": 1, "next": None})
    page_by_page(service.send, service.count, None)
    assert (service.begun, service.objects) == ([{}, {"after": "b"}], 3)


def test_it_goes_on_once_the_service_answers_again() -> None:
    silent = ServiceRefused("silent", transient=True)
    late = ServiceRefused("late", transient=True, problem={"objects": 1, "next": "c"})
    service = Service({"objects": 2, "next": "b"}, silent, late, {"objects": 1, "next": None})
    page_by_page(service.send, service.count, "a")
    assert [each["after"] for each in service.begun] == ["a", "b", "b", "c"]
    assert service.objects == 4


def test_a_refusal_that_is_final_says_how_to_go_on() -> None:
    refused = ServiceRefused("A rule is needed.", problem={"objects": 1, "next": "c"})
    service = Service({"objects": 2, "next": "b"}, refused)
    with pytest.raises(ServiceRefused, match=r"A rule is needed\. To go on: f --after c"):
        page_by_page(service.send, service.count, None, "f ")
    assert service.objects == 3
    silent = Service(ServiceRefused("silent", transient=True))
    with pytest.raises(ServiceRefused, match=r"^silent$"):
        page_by_page(silent.send, silent.count, None)
