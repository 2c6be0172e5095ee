"""Flows that invoke a real HTTP service, which can hang, fail, flood or redirect."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mediator.base.errors import Invalid, MediatorError, OutcomeUnknown, Unavailable
from mediator.coordination.message_queue import QueueBounds
from mediator.flows import worker
from mediator.flows.http_hosts import HttpHosts
from mediator.flows.http_request import read_request
from mediator.flows.http_services import MAX_RESPONSE_BYTES, HttpServices
from mediator.flows.message_values import MessageValues
from mediator.flows.worker import MAX_ATTEMPTS
from mediator.query.json_node import Node
from tests.process.access.certificates import write_certificate
from tests.process.flows.http_service import HttpService, http_service
from tests.process.flows.remote import HANGING_S, RECEIVE, TOTAL_S, get, messages, post
from tests.process.flows.shop import Shop
from tests.process.service import unique


async def send(client: HttpServices, url: str, method: str = "GET", **members: Any) -> Any:
    node = Node({"method": method, "url": url, **members}, "", [])
    template = read_request(node, {})
    assert template is not None
    assert not node.errors
    return await client.send(template.fill(MessageValues(), "key"))


async def error_of(client: HttpServices, url: str, method: str = "GET") -> MediatorError:
    with pytest.raises(MediatorError) as error:
        await send(client, url, method)
    return error.value


async def test_a_request_has_its_body_its_headers_and_its_key(
    client: HttpServices, remote: HttpService
) -> None:
    url = f"{remote.url}/fail/0/orders?a=1"
    headers = {"Authorization": "Bearer x"}
    answer = await send(client, url, "POST", body={"a": [1]}, headers=headers)
    assert answer == {"received": {"a": [1]}}
    (received,) = remote.received
    assert (received.method, received.target) == ("POST", "/fail/0/orders?a=1")
    assert received.headers["authorization"] == "Bearer x"
    assert received.headers["host"] == f"127.0.0.1:{remote.port}"
    assert received.key == '"key"'


async def test_no_content_is_null(client: HttpServices, remote: HttpService) -> None:
    assert await send(client, f"{remote.url}/fixed/empty") is None


@pytest.mark.parametrize("path", ["hang", "broken", "trickle", "status/500", "status/503"])
async def test_failures_that_can_pass_are_transient(
    client: HttpServices, remote: HttpService, path: str
) -> None:
    client.total_s = HANGING_S
    read_error = await error_of(client, f"{remote.url}/{path}")
    write_error = await error_of(client, f"{remote.url}/{path}", "POST")
    assert isinstance(read_error, Unavailable)
    assert not isinstance(read_error, OutcomeUnknown)
    assert isinstance(write_error, OutcomeUnknown)


@pytest.mark.parametrize(
    "path",
    [
        *(f"status/{code}" for code in (301, 302, 307, 308, 400, 404, 409)),
        *(f"fixed/{name}" for name in ("text", "garbage", "bomb")),
    ],
)
async def test_failures_that_cannot_pass_are_permanent(
    client: HttpServices, remote: HttpService, path: str
) -> None:
    assert isinstance(await error_of(client, f"{remote.url}/{path}"), Invalid)
    assert remote.to("/customers") == []


async def test_a_flood_is_not_read(client: HttpServices, remote: HttpService) -> None:
    error = await error_of(client, f"{remote.url}/huge")
    assert isinstance(error, Invalid)
    assert str(MAX_RESPONSE_BYTES) in error.detail
    assert remote.sent < 50 * 2**20


async def test_a_service_that_is_gone_was_not_reached(client: HttpServices) -> None:
    async with http_service() as service:
        url = service.url
    error = await error_of(client, url, "POST")
    assert isinstance(error, Unavailable)
    assert not isinstance(error, OutcomeUnknown)


async def test_a_connection_goes_to_the_address_that_was_checked(remote: HttpService) -> None:
    """A name that resolves to another address at every look-up (DNS rebinding)."""
    resolved_hosts: list[str] = []

    async def resolve(host: str, port: int) -> Sequence[str]:
        resolved_hosts.append(host)
        return ["127.0.0.1"] if len(resolved_hosts) == 1 else ["169.254.169.254"]

    name = f"rebinding.test:{remote.port}"
    services = HttpServices(HttpHosts.of([name], private=True, resolve=resolve), TOTAL_S)
    assert await send(services, f"http://{name}/customers/A") == {"customer": "A", "amount": 1}
    assert remote.received[0].headers["host"] == name
    assert isinstance(await error_of(services, f"http://{name}/customers/A"), Invalid)
    assert (len(resolved_hosts), len(remote.received)) == (2, 1)
    await services.close()


async def test_a_certificate_is_verified_for_the_name_and_not_for_the_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_certificate(tmp_path, "service")  # for localhost and 127.0.0.1
    monkeypatch.setenv("SSL_CERT_FILE", str(files.chain))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(files.chain, files.key)

    async def resolve(host: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with http_service(context) as remote:
        names = [f"{host}:{remote.port}" for host in ("localhost", "127.0.0.1", "other.test")]
        services = HttpServices(HttpHosts.of(names, private=True, resolve=resolve), TOTAL_S)
        for name in names[:2]:
            assert await send(services, f"https://{name}/customers/A")
        error = await error_of(services, f"https://{names[2]}/customers/A")
        assert isinstance(error, Unavailable)
        assert len(remote.received) == 2
        await services.close()


async def test_no_proxy_is_taken_from_the_environment(
    client: HttpServices, remote: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert await send(client, f"{remote.url}/customers/A")


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_get_is_sent_once_for_a_partition_and_a_post_for_each_message(
    shop: Shop, remote: HttpService, ordered: bool
) -> None:
    plan = [RECEIVE, get(f"{remote.url}/customers/{{name}}"), post(f"{remote.url}/fail/0/orders")]
    flow = await shop.create(plan, ordered=ordered)
    states = await shop.ended(flow, await shop.tickets(flow, messages("ABACBC")))
    assert [state["result"]["found"]["customer"] for state in states] == list("ABACBC")
    answers = [state["result"]["answer"]["received"]["of"] for state in states]
    assert answers == [f"m{i}" for i in range(1, 7)]
    assert [request.target for request in remote.to("/customers")] == [
        f"/customers/{n}" for n in "ABC"
    ]
    posts = remote.to("/fail")
    assert len({request.key for request in posts}) == len(posts) == 6
    if ordered:
        assert [request.body["of"] for request in posts] == answers
    report = await shop.report(flow)
    assert (report["counts"]["lookups"], report["counts"]["lookups_saved"]) == (3, 3)
    assert "repeated_requests" not in report["counts"]
    assert report["partitioned_by"] == [{"attribute": "name", "by": "value"}]


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_request_whose_outcome_is_unknown_is_repeated_under_its_key(
    shop: Shop, remote: HttpService, ordered: bool
) -> None:
    plan = [RECEIVE, post(f"{remote.url}/fail/0/first"), post(f"{remote.url}/fail/2/{{name}}")]
    flow = await shop.create(plan, ordered=ordered)
    (state,) = await shop.ended(flow, await shop.tickets(flow, messages("A")))
    assert state["state"] == "done"
    # An answered request is not sent again with an unanswered one.
    assert len(remote.to("/fail/0")) == 1
    attempts = remote.to("/fail/2")
    assert (len(attempts), len({request.key for request in attempts})) == (3, 1)
    assert (await shop.report(flow))["counts"]["repeated_requests"] == 2


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_message_whose_request_fails_does_not_fail_others(
    shop: Shop, remote: HttpService, ordered: bool
) -> None:
    """All of them are in one batch."""
    plan = [RECEIVE, post(f"{remote.url}/status/{{name}}")]
    flow = await shop.create(plan, ordered=ordered)
    tickets = await shop.tickets(flow, messages(["200", "404", "500", "302", "200"]))
    states = await shop.ended(flow, tickets)
    assert [s["state"] for s in states] == ["done", "failed", "failed", "failed", "done"]
    assert [len(remote.to(f"/status/{code}")) for code in (404, 500, 302)] == [1, 5, 1]
    assert "404" in states[1]["error"]["detail"]


async def test_a_request_that_takes_longer_than_a_lease_ends(
    shop: Shop, services: HttpServices, remote: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease of the ordered sender is renewed meanwhile, so nobody else sends the same."""
    # Five requests and their pauses take longer. A busy machine loses a lease that is shorter, or
    # renewed less often.
    monkeypatch.setattr(shop.coordination.message_queue, "bounds", QueueBounds(lease_s=8.0))
    monkeypatch.setattr(worker, "LEASE_S", 3.0)
    monkeypatch.setattr(services, "total_s", HANGING_S)
    plan = [RECEIVE, post(f"{remote.url}/{{name}}/0/x")]
    flow = await shop.create(plan, ordered=True)
    states = await shop.ended(flow, await shop.tickets(flow, messages(["hang", "fail"])))
    assert [state["state"] for state in states] == ["failed", "done"]
    assert len(remote.to("/hang")) == MAX_ATTEMPTS


async def test_an_operator_behind_a_write_is_executed_for_each_message(shop: Shop) -> None:
    write = {"class": "orders", "id": {"$": "/number"}, "body": {"customer": {"$": "/name"}}}
    assign = {"op": "assign", "to": "written", "value": {"$": "/number"}}
    flow = await shop.create([RECEIVE, {"op": "invoke", "write": write}, assign])
    sent = [{**message, "number": unique("n")} for message in messages("AA")]
    states = await shop.ended(flow, await shop.tickets(flow, sent))
    assert [state["result"]["written"] for state in states] == [
        message["number"] for message in sent
    ]


async def test_a_host_that_settings_do_not_list_is_refused(shop: Shop) -> None:
    plan = [RECEIVE, get("https://credit.example/{name}")]
    answer = await shop.client.post("message-flows", json={"plan": plan, "latency_s": 10})
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["pointer"]) == (400, "/plan/1/http/url")
    assert "PORTOLAN_FLOW_HOSTS" in error["detail"]


async def test_a_host_that_is_not_listed_any_more_is_not_invoked(
    shop: Shop, services: HttpServices, remote: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = await shop.create([RECEIVE, get(f"{remote.url}/customers/{{name}}")])
    monkeypatch.setattr(services, "hosts", HttpHosts())  # as a restart would
    (state,) = await shop.ended(flow, await shop.tickets(flow, messages("A")))
    assert "PORTOLAN_FLOW_HOSTS" in state["error"]["detail"]
    assert remote.received == []


@pytest.mark.parametrize(
    ("http", "pointer"),
    [
        ({"method": "HEAD", "url": "http://h/"}, "/http/method"),
        ({"method": "GET"}, "/http/url"),
        ({"method": "GET", "url": "http://h/{nobody}"}, "/http/url"),
        ({"method": "GET", "url": "http://h/", "body": {}}, "/http/body"),
        ({"method": "POST", "url": "http://h/", "body": {"$": "/nobody"}}, "/http/body/$"),
        ({"method": "GET", "url": "http://h/", "headers": {"Host": "x"}}, "/http/headers/Host"),
        ({"method": "GET", "url": "http://h/", "headers": {"a": "x\r\n"}}, "/http/headers/a"),
        (
            {"method": "GET", "url": "http://h/", "headers": {"a": {"$": "/name"}}},
            "/http/headers/a",
        ),
        ({"method": "GET", "url": "http://h/", "proxy": "x"}, "/http/proxy"),
        ("http://h/", "/http"),
    ],
)
async def test_a_wrong_request_is_refused_with_its_location(
    shop: Shop, http: Any, pointer: str
) -> None:
    plan = [RECEIVE, {"op": "invoke", "http": http, "to": "found"}]
    answer = await shop.client.post("message-flows", json={"plan": plan, "latency_s": 10})
    assert answer.status_code == 400
    assert f"/plan/1{pointer}" in [error["pointer"] for error in answer.json()["errors"]]
