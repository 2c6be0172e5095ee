"""Events of runs, from what has changed between two looks."""

from __future__ import annotations

from mediator.admission.evaluation import Event, Subject
from mediator.admission.shared_events import RunEvents

MOST = 50


def run(id_: str, state: str) -> Subject:
    return {"id": id_, "state": state}


def named(events: list[Event]) -> list[str]:
    return [f"{event.name} {event.attributes['run']['id']}" for event in events]


def test_the_life_of_a_run() -> None:
    events = RunEvents()
    looks = [
        ([run("a", "QUEUED")], [], ["RunSubmitted a"]),
        ([run("a", "QUEUED")], [], []),
        ([run("a", "ACTIVE")], [], ["RunStarted a"]),
        ([run("a", "INACTIVE")], [], []),
        ([run("a", "QUEUED")], [], []),
        ([run("a", "ACTIVE")], [], ["RunStarted a"]),
        ([], [run("a", "DONE")], ["RunEnded a"]),
        ([], [], []),
    ]
    for pending, ended, expected in looks:
        assert events.missing(pending) == [each["id"] for each in ended]
        assert named(events.of(pending, ended, MOST)) == expected


def test_a_run_that_was_never_seen_waiting_has_started_alone() -> None:
    assert named(RunEvents().of([run("a", "ACTIVE")], [], MOST)) == ["RunStarted a"]


def test_what_is_beyond_the_bound_is_an_event_of_the_next_look() -> None:
    events, runs = RunEvents(), [run(each, "QUEUED") for each in "abcde"]
    assert named(events.of(runs, [], 2)) == ["RunSubmitted a", "RunSubmitted b"]
    assert named(events.of(runs, [], 2)) == ["RunSubmitted c", "RunSubmitted d"]
    ended = [run(each, "DONE") for each in "abcd"]
    assert named(events.of([runs[4]], ended, 3)) == ["RunEnded a", "RunEnded b", "RunEnded c"]
    assert named(events.of([runs[4]], ended, 3)) == ["RunEnded d", "RunSubmitted e"]
    assert named(events.of([runs[4]], ended, 3)) == []


def test_another_replica_begins_with_all_there_are() -> None:
    events = RunEvents()
    events.of([run("a", "QUEUED")], [], MOST)
    events.forget()
    assert named(events.of([run("a", "QUEUED")], [], MOST)) == ["RunSubmitted a"]
