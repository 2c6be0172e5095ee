"""Jobs that are submitted over HTTP: a lost answer causes no second run."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import pytest

from app.commands import reconnection
from app.commands.remote_runs import RemoteRuns
from app.commands.service_client import ServiceClient, ServiceRefused

ACCEPTED = b'HTTP/1.1 202 Accepted\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"id": "r1"}'


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        listening.settimeout(60)
        yield listening


def answering(listener: socket.socket, *answers: bytes) -> tuple[Thread, list[bytes]]:
    """Answer one connection after the other; an empty answer is one that was lost."""
    seen: list[bytes] = []

    def serve() -> None:
        for answer in answers:
            connection, _ = listener.accept()
            with closing(connection):
                request = b""
                while not request.endswith(b"}"):
                    request += connection.recv(65_536)
                seen.append(request)
                connection.sendall(answer)

    thread = Thread(target=serve)
    thread.start()
    return thread, seen


def submit(listener: socket.socket) -> str:
    with ServiceClient(f"http://127.0.0.1:{listener.getsockname()[1]}", None) as service:
        return str(RemoteRuns(service, "club").submit({"kind": "k"}, dry_run=False)["id"])


def keys_of(seen: list[bytes]) -> list[str]:
    return [
        key.decode()
        for request in seen
        for key in re.findall(rb"idempotency-key: (\w+)", request.lower())
    ]


def test_a_job_whose_answer_is_lost_is_sent_again_under_its_key(listener: socket.socket) -> None:
    """By a proxy whose service has gone, and by the service, more than once."""
    page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 8\r\nConnection: close\r\n\r\n<p>a</p>"
    thread, seen = answering(listener, page, b"", b"", ACCEPTED)
    assert submit(listener) == "r1"
    thread.join()
    keys = keys_of(seen)
    assert (len(keys), len({*keys})) == (4, 1)


def test_a_job_is_submitted_once_a_service_that_was_lost_is_there_again(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt finds nobody who listens."""
    address = listener.getsockname()
    pauses = 0

    def pause(_: float) -> None:
        nonlocal pauses, listener
        pauses += 1
        if pauses == 1:
            thread.join()
            listener.close()
        else:
            listener = socket.create_server(address)
            listener.settimeout(60)
            threads.append(answering(listener, ACCEPTED))

    thread, seen = answering(listener, b"")
    threads: list[tuple[Thread, list[bytes]]] = []
    monkeypatch.setattr(reconnection, "sleep", pause)
    assert submit(listener) == "r1"
    [(second, seen_then)] = threads
    second.join()
    listener.close()
    assert pauses == 2
    keys = keys_of([*seen, *seen_then])
    assert (len(keys), len({*keys})) == (2, 1)


def test_a_service_that_stays_silent_may_have_the_job(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "SILENCE_S", -1.0)
    thread, _ = answering(listener, b"")
    with pytest.raises(ServiceRefused, match=r"does not answer.*The job may have been submitted"):
        submit(listener)
    thread.join()


@pytest.mark.parametrize("body", [b"<p>a page</p>", b"5", b"\xff"])
def test_an_answer_of_a_proxy_is_reported(listener: socket.socket, body: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    thread, _ = answering(listener, answer % (len(body), body))
    with pytest.raises(ServiceRefused, match="no JSON"):
        submit(listener)
    thread.join()


def test_a_refusal_of_the_service_is_final(listener: socket.socket) -> None:
    body = b'{"detail": "No worker executes jobs."}'
    answer = b"HTTP/1.1 503 No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    thread, _ = answering(listener, answer % (len(body), body))
    with pytest.raises(ServiceRefused, match=r"^No worker executes jobs\.$"):
        submit(listener)
    thread.join()


def limited(status: int, retry_s: int, body: bytes = b'{"detail": "Not now."}') -> bytes:
    head = b"HTTP/1.1 %d No\r\nRetry-After: %d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, retry_s, len(body)) + body


def test_a_service_that_takes_no_more_is_asked_again_when_it_says(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it starts, by its limits, and by those of a proxy."""
    pauses: list[float] = []
    monkeypatch.setattr(reconnection, "sleep", pauses.append)
    answers = (limited(503, 2), limited(429, 7), limited(429, 99, b"<p>"), ACCEPTED)
    thread, seen = answering(listener, *answers)
    assert submit(listener) == "r1"
    thread.join()
    assert pauses == [reconnection.PAUSE_S, 7.0, 99.0]
    keys = keys_of(seen)
    assert (len(keys), len({*keys})) == (4, 1)


def test_a_longer_wait_than_the_longest_is_not_begun(listener: socket.socket) -> None:
    """Nothing has been done, so there is nothing to go on with."""
    thread, _ = answering(listener, limited(429, 601))
    with pytest.raises(ServiceRefused, match=r"^Not now\.$"):
        submit(listener)
    thread.join()


def test_a_service_that_only_says_that_it_takes_no_more_is_given_up(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pause is one that the limit allows; all together are more. Silences are waits apart."""
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(reconnection, "sleep", pause)
    monkeypatch.setattr(reconnection, "monotonic", lambda: clock[0])
    answers = (limited(429, 300), b"", limited(429, 290), b"", limited(429, 10))
    thread, _ = answering(listener, *answers)
    with pytest.raises(ServiceRefused, match=r"^Not now\. The job may have been submitted"):
        submit(listener)
    thread.join()
    assert clock == [591.0]


def test_a_service_that_never_answers_is_reported() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        port = gone.getsockname()[1]
    with (
        ServiceClient(f"http://127.0.0.1:{port}", None) as service,
        pytest.raises(ServiceRefused, match="does not answer"),
    ):
        RemoteRuns(service, "club").submit({"kind": "k"}, dry_run=False)
