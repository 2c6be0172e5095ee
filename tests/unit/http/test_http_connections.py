"""Sweeps end exactly the connections that have waited for too long."""

from __future__ import annotations

import pytest

from app.http.connections import Awaited, Connections, PortLimits, Wait

SECONDS = {"head": 2, "body": 4, "response": 6, "idle": 8}
LIMITS = PortLimits(**SECONDS, connections=3, per_peer=2)


class Waiting:
    """A connection whose wait the test sets."""

    def __init__(self, awaits: Awaited | None = None) -> None:
        self.awaits = awaits
        self.timed_out: list[Wait] = []

    def awaited(self) -> Awaited | None:
        return self.awaits

    def time_out(self, wait: Wait) -> None:
        self.timed_out.append(wait)


@pytest.mark.parametrize("wait", ["head", "body", "response", "idle"])
def test_a_connection_without_progress_is_ended_after_its_timeout(wait: Wait) -> None:
    port, connection = Connections(LIMITS), Waiting((wait, 0))
    assert port.admit(connection, "a")
    for _ in range(SECONDS[wait]):
        port.sweep()
    assert connection.timed_out == []
    port.sweep()
    assert connection.timed_out == [wait]


def test_progress_and_pauses_of_the_server_restart_the_timeout() -> None:
    port, slow, paused = Connections(LIMITS), Waiting(), Waiting()
    assert port.admit(slow, "a")
    assert port.admit(paused, "b")
    for second in range(100):
        slow.awaits = ("body", second // SECONDS["body"])
        paused.awaits = None if second % SECONDS["body"] == 0 else ("body", 0)
        port.sweep()
    assert slow.timed_out == paused.timed_out == []


def test_another_wait_restarts_the_timeout() -> None:
    port, connection = Connections(LIMITS), Waiting(("head", 1))
    assert port.admit(connection, "a")
    for _ in range(SECONDS["head"]):
        port.sweep()
    connection.awaits = ("body", 1)
    for _ in range(SECONDS["body"]):
        port.sweep()
    assert connection.timed_out == []


def test_connections_are_counted_until_they_leave() -> None:
    port = Connections(LIMITS)
    first, second, third, fourth = (Waiting() for _ in range(4))
    assert port.admit(first, "a")
    assert port.admit(second, "a")
    assert not port.admit(third, "a"), "an address has two at most"
    assert port.admit(third, "b")
    assert not port.admit(fourth, "c"), "the port has three at most"
    port.leave(fourth)
    assert not port.admit(fourth, "c"), "a refused connection frees nothing"
    port.leave(first)
    assert port.admit(fourth, "a")
