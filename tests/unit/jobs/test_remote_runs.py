"""Jobs that are submitted over HTTP: a lost answer causes no second run."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import closing
from threading import Thread

import pytest

from app.commands.remote_runs import RemoteRuns
from app.commands.service_client import ServiceRefused

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
    with RemoteRuns(f"http://127.0.0.1:{listener.getsockname()[1]}", "club", None) as runs:
        return str(runs.submit({"kind": "k"}, dry_run=False)["id"])


def test_a_job_whose_answer_was_lost_is_sent_once_more_under_its_key(
    listener: socket.socket,
) -> None:
    thread, seen = answering(listener, b"", ACCEPTED)
    assert submit(listener) == "r1"
    thread.join()
    keys = [re.search(rb"idempotency-key: (\w+)", request.lower()) for request in seen]
    assert len({key and key[1] for key in keys} - {None}) == 1


@pytest.mark.parametrize(("status", "attempts"), [(b"200 OK", 1), (b"502 Bad Gateway", 2)])
@pytest.mark.parametrize("body", [b"<p>a page</p>", b"5", b"\xff"])
def test_an_answer_of_a_proxy_is_reported(
    listener: socket.socket, status: bytes, attempts: int, body: bytes
) -> None:
    answer = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
    thread, _ = answering(listener, *[answer % (status, len(body), body)] * attempts)
    with pytest.raises(ServiceRefused, match=r"no JSON|answered 502"):
        submit(listener)
    thread.join()


def test_a_service_that_never_answers_is_reported() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as gone:
        port = gone.getsockname()[1]
    with (
        RemoteRuns(f"http://127.0.0.1:{port}", "club", None) as runs,
        pytest.raises(ServiceRefused, match="does not answer"),
    ):
        runs.submit({"kind": "k"}, dry_run=False)
