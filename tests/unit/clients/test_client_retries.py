"""Which requests the Python clients retry, and how often."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from portolan_client import (
    AdminClient,
    AsyncClient,
    BrokenReply,
    Client,
    Conflict,
    IdempotencyKeyInUse,
    NotFound,
    PortolanError,
    Problem,
    RateLimited,
    Retries,
    ServerError,
    Unavailable,
    Unreachable,
)

RETRIES = Retries(attempts=3, first_pause_s=0, max_pause_s=5, key_in_use_s=4)
SUCCESS = httpx.Response(200, json={"id": "a"})
ODD_KEY = '"sale" \\ 7'


def refusal(status: int, kind: str = "", **headers: str) -> httpx.Response:
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json={"type": f"/problems/{kind}"}, headers=fields)


class Script:
    """A service that answers or fails as scripted.

    Attributes:
        keys: The Idempotency-Key of each request.
    """

    def __init__(self, *steps: httpx.Response | type[httpx.TransportError]) -> None:
        self._steps = iter(steps)
        self.keys: list[str | None] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.keys.append(request.headers.get("idempotency-key"))
        step = next(self._steps)
        if isinstance(step, httpx.Response):
            return httpx.Response(step.status_code, headers=step.headers, content=step.content)
        raise step("as it is written", request=request)

    def client(self, **options: Any) -> Client:
        transport = httpx.MockTransport(self)
        return Client(
            "http://portolan", "shop", transport=transport, **{"retries": RETRIES, **options}
        )


@pytest.mark.parametrize(
    "failures",
    [
        [httpx.ConnectError, httpx.ReadError],
        [httpx.WriteError, httpx.RemoteProtocolError],
        [refusal(503, "unavailable", retry_after="0"), refusal(429, retry_after="0")],
        [refusal(409, "idempotency-key-in-use", retry_after="0"), httpx.ReadError],
    ],
)
@pytest.mark.parametrize(
    "write", [lambda c: c.put("t", "a", {}), lambda c: c.create("t", {}), lambda c: c.get("t", "a")]
)
def test_a_request_is_retried_under_its_key(
    failures: Sequence[Any], write: Callable[[Client], Any]
) -> None:
    script = Script(*failures, SUCCESS)
    with script.client() as client:
        assert write(client).value == {"id": "a"}
    assert len(script.keys) == 3
    assert len(set(script.keys)) == 1


def test_each_write_has_its_own_key() -> None:
    script = Script(SUCCESS, SUCCESS)
    with script.client() as client:
        client.put("t", "a", {})
        client.put("t", "a", {})
    assert None not in script.keys
    assert len(set(script.keys)) == 2


@pytest.mark.parametrize(
    ("final", "error"),
    [
        (refusal(503, "unavailable"), Unavailable),
        (refusal(503, "unavailable", retry_after="6"), Unavailable),
        (refusal(503, retry_after="Fri, 27 Nov 2026 23:00:00 GMT"), Unavailable),
        (refusal(429, retry_after="60"), RateLimited),
        (refusal(409, "locked"), Conflict),
        (refusal(500, retry_after="0"), ServerError),
        (refusal(502), ServerError),
        (httpx.ReadTimeout, Unreachable),
        (httpx.DecodingError, Unreachable),
        (httpx.ConnectTimeout, Unreachable),
        (httpx.Response(200, text="<html>"), BrokenReply),
        (httpx.Response(200, json=[1]), BrokenReply),
        (httpx.Response(302, headers={"location": "http://elsewhere"}), Problem),
    ],
)
async def test_a_failure_that_a_retry_cannot_fix_is_not_retried(
    final: Any, error: type[Exception]
) -> None:
    assert await count_requests(error, final) == [1, 1]


@pytest.mark.parametrize(
    ("failure", "error"),
    [(httpx.ReadError, Unreachable), (refusal(503, retry_after="0"), Unavailable)],
)
async def test_attempts_are_limited(failure: Any, error: type[Exception]) -> None:
    assert await count_requests(error, *[failure] * 3) == [3, 3]


async def test_waits_for_a_key_are_limited_and_do_not_count_as_attempts() -> None:
    in_use = refusal(409, "idempotency-key-in-use", retry_after="0")
    losses = [httpx.ReadError] * 2
    steps = [*losses, *[in_use] * 5]
    assert await count_requests(IdempotencyKeyInUse, *steps) == [7, 7]
    assert await count_requests(Unreachable, *[in_use] * 4, *losses, losses[0]) == [7, 7]


def test_with_one_attempt_nothing_is_retried() -> None:
    script = Script(refusal(409, "idempotency-key-in-use", retry_after="0"))
    with (
        script.client(retries=Retries(attempts=1)) as client,
        pytest.raises(IdempotencyKeyInUse),
    ):
        client.put("t", "a", {})
    assert len(script.keys) == 1


@pytest.mark.parametrize(
    "failure",
    [httpx.ReadTimeout, httpx.Response(502, text="<html>"), httpx.Response(200, text="<html>")],
)
@pytest.mark.parametrize("key", [None, ODD_KEY])
def test_an_error_has_the_key_of_its_write(failure: Any, key: str | None) -> None:
    script = Script(failure, SUCCESS)
    with script.client() as client:
        with pytest.raises(PortolanError) as failed:
            client.update("t", "a", {}, idempotency_key=key)
        error_key = failed.value.idempotency_key
        assert error_key is not None
        assert key in {None, error_key}
        client.update("t", "a", {}, idempotency_key=error_key)
    assert len(set(script.keys)) == 1


def test_the_error_of_a_read_has_no_key() -> None:
    with Script(refusal(404, "not-found")).client() as client, pytest.raises(NotFound) as absent:
        client.get("t", "a")
    assert absent.value.idempotency_key is None


async def count_requests(error: type[Exception], *steps: Any) -> list[int]:
    """Update an object with each client, which raises an error; return their request counts."""
    blocking, asynchronous = Script(*steps), Script(*steps)
    with blocking.client() as client, pytest.raises(error):
        client.update("t", "a", {})
    transport = httpx.MockTransport(asynchronous)
    async with AsyncClient(
        "http://p", "shop", transport=transport, retries=RETRIES
    ) as async_client:
        with pytest.raises(error):
            await async_client.update("t", "a", {})
    return [len(script.keys) for script in (blocking, asynchronous)]


def test_a_request_without_a_key_is_sent_once() -> None:
    script = Script(refusal(503, retry_after="0"))
    transport = httpx.MockTransport(script)
    admin = AdminClient("http://portolan", transport=transport, retries=RETRIES)
    with admin, pytest.raises(Unavailable):
        admin.put_schema("shop", {})
    assert script.keys == [None]


def test_a_problem_has_the_members_of_its_document() -> None:
    document = {
        "type": "/problems/too-many-requests",
        "detail": "slow down",
        "instance": "r1",
        "errors": [{"pointer": "/a", "detail": "no"}, "rubbish"],
        "limit": "rate",
    }
    script = Script(httpx.Response(429, json=document, headers={"retry-after": "60"}))
    with script.client() as client, pytest.raises(RateLimited) as refused:
        client.get("t", "a")
    problem = refused.value
    assert (problem.status, problem.kind, problem.instance) == (429, "too-many-requests", "r1")
    assert (problem.retry_after_s, problem.members["limit"]) == (60, "rate")
    assert str(problem) == "429 too-many-requests: slow down; /a: no"


@pytest.mark.parametrize("credential", ["secret", lambda: "secret"])
def test_a_credential_is_sent_and_not_shown(credential: Any) -> None:
    authorizations: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        authorizations.append(request.headers.get("authorization"))
        assert request.headers["user-agent"].startswith("portolan-client/")
        assert request.headers["x-request-id"] == "r1"
        return SUCCESS

    transport, headers = httpx.MockTransport(answer), {"X-Request-Id": "r1"}
    with Client(
        "http://p/", "shop", credential=credential, transport=transport, headers=headers
    ) as client:
        client.get("t", "a")
        assert "secret" not in repr(vars(client))
    assert authorizations == ["Bearer secret"]
