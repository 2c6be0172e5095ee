"""Events of runs, from the changes between two samples."""

from __future__ import annotations

from mediator.admission.evaluation import Event, Subject
from mediator.admission.shared_events import RunEvents

MAX_EVENTS = 50


def run(id_: str, state: str) -> Subject:
    return {"id": id_, "state": state}


def event_names(events: list[Event]) -> list[str]:
    return [f"{event.name} {event.attributes['run']['id']}" for event in events]


def test_the_events_of_a_run() -> None:
    events = RunEvents()
    samples = [
        ([run("a", "QUEUED")], [], ["RunSubmitted a"]),
        ([run("a", "QUEUED")], [], []),
        ([run("a", "ACTIVE")], [], ["RunStarted a"]),
        ([run("a", "INACTIVE")], [], []),
        ([run("a", "QUEUED")], [], []),
        ([run("a", "ACTIVE")], [], ["RunStarted a"]),
        ([], [run("a", "DONE")], ["RunEnded a"]),
        ([], [], []),
    ]
    for pending, ended, expected in samples:
        assert events.missing(pending) == [subject["id"] for subject in ended]
        assert event_names(events.of(pending, ended, MAX_EVENTS)) == expected


def test_a_run_first_seen_active_has_only_started() -> None:
    assert event_names(RunEvents().of([run("a", "ACTIVE")], [], MAX_EVENTS)) == ["RunStarted a"]


def test_events_beyond_the_limit_follow_with_the_next_sample() -> None:
    events, runs = RunEvents(), [run(id_, "QUEUED") for id_ in "abcde"]
    assert event_names(events.of(runs, [], 2)) == ["RunSubmitted a", "RunSubmitted b"]
    assert event_names(events.of(runs, [], 2)) == ["RunSubmitted c", "RunSubmitted d"]
    ended = [run(id_, "DONE") for id_ in "abcd"]
    assert event_names(events.of([runs[4]], ended, 3)) == ["RunEnded a", "RunEnded b", "RunEnded c"]
    assert event_names(events.of([runs[4]], ended, 3)) == ["RunEnded d", "RunSubmitted e"]
    assert event_names(events.of([runs[4]], ended, 3)) == []


def test_another_replica_starts_with_all_pending_runs() -> None:
    events = RunEvents()
    events.of([run("a", "QUEUED")], [], MAX_EVENTS)
    events.forget()
    assert event_names(events.of([run("a", "QUEUED")], [], MAX_EVENTS)) == ["RunSubmitted a"]
