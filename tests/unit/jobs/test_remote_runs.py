"""Jobs submitted over HTTP: a lost reply causes no second run."""

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
    with closing(socket.create_server(("127.0.0.1", 0))) as socket_:
        socket_.settimeout(60)
        yield socket_


def serve_replies(listener: socket.socket, *replies: bytes) -> tuple[Thread, list[bytes]]:
    """Reply to one connection after the other; an empty reply is a lost one."""
    requests: list[bytes] = []

    def serve() -> None:
        for reply in replies:
            connection, _ = listener.accept()
            with closing(connection):
                request = b""
                while not request.endswith(b"}"):
                    request += connection.recv(65_536)
                requests.append(request)
                connection.sendall(reply)

    thread = Thread(target=serve)
    thread.start()
    return thread, requests


def submit(listener: socket.socket) -> str:
    with ServiceClient(f"http://127.0.0.1:{listener.getsockname()[1]}", None) as service:
        return str(RemoteRuns(service, "club").submit({"kind": "k"}, dry_run=False)["id"])


def keys_of(requests: list[bytes]) -> list[str]:
    return [
        key.decode()
        for request in requests
        for key in re.findall(rb"idempotency-key: (\w+)", request.lower())
    ]


def test_a_job_with_a_lost_reply_is_resent_with_its_key(listener: socket.socket) -> None:
    """The reply is lost by a proxy without its service, and twice by the service."""
    page = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 8\r\nConnection: close\r\n\r\n<p>a</p>"
    thread, requests = serve_replies(listener, page, b"", b"", ACCEPTED)
    assert submit(listener) == "r1"
    thread.join()
    keys = keys_of(requests)
    assert (len(keys), len({*keys})) == (4, 1)


def test_a_job_is_submitted_once_a_lost_service_is_back(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second attempt finds no listener."""
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
            threads.append(serve_replies(listener, ACCEPTED))

    thread, requests = serve_replies(listener, b"")
    threads: list[tuple[Thread, list[bytes]]] = []
    monkeypatch.setattr(reconnection, "sleep", pause)
    assert submit(listener) == "r1"
    [(second, later_requests)] = threads
    second.join()
    listener.close()
    assert pauses == 2
    keys = keys_of([*requests, *later_requests])
    assert (len(keys), len({*keys})) == (2, 1)


def test_a_service_without_a_reply_may_have_the_job(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconnection, "SILENCE_S", -1.0)
    thread, _ = serve_replies(listener, b"")
    with pytest.raises(ServiceRefused, match=r"does not answer.*The job may have been submitted"):
        submit(listener)
    thread.join()


@pytest.mark.parametrize("body", [b"<p>a page</p>", b"5", b"\xff"])
def test_a_reply_of_a_proxy_is_reported(listener: socket.socket, body: bytes) -> None:
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    thread, _ = serve_replies(listener, reply % (len(body), body))
    with pytest.raises(ServiceRefused, match="no JSON"):
        submit(listener)
    thread.join()


def test_a_refusal_of_the_service_is_final(listener: socket.socket) -> None:
    body = b'{"detail": "No worker executes jobs."}'
    reply = b"HTTP/1.1 503 No\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    thread, _ = serve_replies(listener, reply % (len(body), body))
    with pytest.raises(ServiceRefused, match=r"^No worker executes jobs\.$"):
        submit(listener)
    thread.join()


def limited(status: int, retry_s: int, body: bytes = b'{"detail": "Not now."}') -> bytes:
    head = b"HTTP/1.1 %d No\r\nRetry-After: %d\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, retry_s, len(body)) + body


def test_an_overloaded_service_is_retried_after_its_retry_after(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses while it starts, by its limits, and by those of a proxy."""
    pauses: list[float] = []
    monkeypatch.setattr(reconnection, "sleep", pauses.append)
    replies = (limited(503, 2), limited(429, 7), limited(429, 99, b"<p>"), ACCEPTED)
    thread, requests = serve_replies(listener, *replies)
    assert submit(listener) == "r1"
    thread.join()
    assert pauses == [reconnection.PAUSE_S, 7.0, 99.0]
    keys = keys_of(requests)
    assert (len(keys), len({*keys})) == (4, 1)


def test_a_retry_after_above_the_maximum_is_not_waited_for(listener: socket.socket) -> None:
    """No job can have been submitted, and the error says so."""
    thread, _ = serve_replies(listener, limited(429, 601))
    with pytest.raises(ServiceRefused, match=r"^Not now\.$"):
        submit(listener)
    thread.join()


def test_retries_of_an_overloaded_service_are_limited(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each pause is within the limit, but not their sum. Lost replies are counted separately."""
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    monkeypatch.setattr(reconnection, "sleep", pause)
    monkeypatch.setattr(reconnection, "monotonic", lambda: clock[0])
    replies = (limited(429, 300), b"", limited(429, 290), b"", limited(429, 10))
    thread, _ = serve_replies(listener, *replies)
    with pytest.raises(ServiceRefused, match=r"^Not now\. The job may have been submitted"):
        submit(listener)
    thread.join()
    assert clock == [591.0]


def test_an_unreachable_service_is_reported() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as closed:
        port = closed.getsockname()[1]
    with (
        ServiceClient(f"http://127.0.0.1:{port}", None) as service,
        pytest.raises(ServiceRefused, match="does not answer"),
    ):
        RemoteRuns(service, "club").submit({"kind": "k"}, dry_run=False)
