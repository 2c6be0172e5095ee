"""The data API under hostile input: a problem that names the location, and nothing stored."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.process.caching.newspaper import Newspaper, assert_problem, newspaper
from tests.process.operation.asgi_driver import Answer, send_raw

JSON = (b"content-type", b"application/json")


@pytest.fixture
async def paper() -> AsyncIterator[Newspaper]:
    async with newspaper() as opened:
        yield opened


def _is_problem(answer: Answer) -> bool:
    return (
        answer.headers["content-type"] == "application/problem+json"
        and answer.json()["status"] == answer.status
        and answer.headers["content-length"] == str(len(answer.body))
    )


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (b"", 404),
        (b"/", 404),
        (b"*", 404),
        (b"/v1", 404),
        (b"/v1/news", 404),
        (b"/v1/news/", 404),
        (b"/v2/news/articles/a", 404),
        (b"/v1//articles/a", 404),
        (b"/v1/news/articles/", 404),
        (b"/v1/news/articles/a/b", 404),
        (b"/v1/news/articles/a/", 404),
        (b"/v1/news/Articles/a", 404),
        (b"/v1/news/articles'--/a", 404),
        (b"/v1/$ne/articles/a", 404),
        (b"/v1/" + b"n" * 5000 + b"/articles/a", 404),
        (b"/v1/nope/articles/a", 404),
        (b"/v1/news/nope/a", 404),
        (b"/v1/advice/articles/a", 409),
        (b"/v1/news/articles/.", 400),
        (b"/v1/news/articles/..", 400),
        (b"/v1/news/articles/%2e%2e", 400),
        (b"/v1/news/articles/a%2Fb", 400),
        (b"/v1/news/articles/%00", 400),
        (b"/v1/news/articles/a%0Ab", 400),
        (b"/v1/news/articles/\x7f", 400),
        (b"/v1/news/articles/%ff", 400),
        (b"/v1/news/articles/\xff", 400),
        (b"/v1/news/articles/%ed%a0%80", 400),
        (b"/v1/news/articles/%", 400),
        (b"/v1/news/articles/%zz", 400),
        (b"/v1/news/articles/" + b"a" * 513, 400),
        (b"/v1/news/articles/" + b"%C3%A9" * 257, 400),
        (b"/v1/news/articles/" + b"a" * 4096, 400),
        (b"/v1/%ff/articles/a", 400),
    ],
)
async def test_hostile_paths(paper: Newspaper, path: bytes, status: int) -> None:
    for method in ("GET", "PUT"):
        answer = await send_raw(
            paper.app,
            method,
            path,
            headers=[JSON],
            pieces=[b'{"title":"x"}' if method == "PUT" else b""],
        )
        assert answer.status == status
        assert _is_problem(answer)
    assert not any(paper.plane.objects.values())


@pytest.mark.parametrize(
    "id_",
    [
        "a" * 512,
        "é" * 256,
        "$where",
        "a'; DROP TABLE x;--",
        "*",
        "%",
        "a b",
        "...",
        "\u200f",
        "KEYS[1]",
    ],
)
async def test_odd_ids_are_stored_unchanged(paper: Newspaper, id_: str) -> None:
    created = await paper.client.post("articles", json={"id": id_, "title": "x"})
    assert created.status_code == 201
    read = await send_raw(paper.app, "GET", created.headers["location"].encode())
    assert read.json()["id"] == id_
    assert list(paper.plane.objects["news", "articles"]) == [id_]


@pytest.mark.parametrize(
    ("body", "slug", "pointer"),
    [
        (b"", "malformed-json", ""),
        (b"{", "malformed-json", ""),
        (b'{"title": NaN}', "malformed-json", ""),
        (b'{"title": "\\ud800"}', "malformed-json", ""),
        (b'{"title": "\xff"}', "malformed-json", ""),
        (b"[" * 2000, "malformed-json", ""),
        (b'{"title": "x", "hits": 9223372036854775808}', "invalid", "/hits"),
        (b'{"title": "x", "hits": 1.5}', "invalid", "/hits"),
        (b'{"title": "x", "hits": {"$gt": 0}}', "invalid", "/hits"),
        (b'{"title": "x", "$where": "1"}', "invalid", "/$where"),
        (b'{"title": null}', "invalid", "/title"),
        (b'{"title": ["x"]}', "invalid", "/title"),
        (b'{"title": "' + b"x" * 301 + b'"}', "invalid", "/title"),
        (b'{"title": "x", "body": ' + b'{"a":' * 100 + b"1" + b"}" * 101, "invalid", ""),
        (b'{"id": "other", "title": "x"}', "invalid", "/id"),
        (b'"text"', "invalid", ""),
        (b"null", "invalid", ""),
    ],
)
async def test_hostile_bodies(paper: Newspaper, body: bytes, slug: str, pointer: str) -> None:
    headers = {"content-type": "application/json"}
    answer = await paper.client.put("articles/a", content=body, headers=headers)
    assert_problem(answer, 400, slug, *([pointer] if pointer else []))
    assert answer.json()["errors"]
    assert not paper.plane.writes


async def test_malformed_json_names_its_position(paper: Newspaper) -> None:
    headers = {"content-type": "application/json"}
    answer = await paper.client.put("articles/a", content=b'{\n "title" 1}', headers=headers)
    position = assert_problem(answer, 400, "malformed-json", "")["position"]
    assert (position["line"], position["column"]) == (2, 10)


async def test_bodies_beyond_the_limit_are_not_read_to_their_end(paper: Newspaper) -> None:
    endless = [b"x" * 1000] * 100
    path = b"/v1/news/articles/a"
    answer = await send_raw(paper.app, "PUT", path, headers=[JSON], pieces=endless, ends=False)
    assert (answer.status, answer.json()["limit_bytes"]) == (413, 4096)
    for pieces in ([b"x" * 5000], [b"x" * 4000, b"x" * 97]):
        answer = await send_raw(paper.app, "PUT", path, headers=[JSON], pieces=pieces)
        assert answer.status == 413
    declared = [JSON, (b"content-length", b"10000000")]
    answer = await send_raw(paper.app, "PUT", path, headers=declared, ends=False)
    assert answer.status == 413
    answer = await send_raw(
        paper.app, "PUT", path, headers=[JSON, (b"content-length", b"9" * 5000)], ends=False
    )
    assert answer.status == 400


async def test_bodies_in_pieces(paper: Newspaper) -> None:
    pieces = [b'{"ti', b"", b'tle": ', b'"x"}']
    answer = await send_raw(paper.app, "PUT", b"/v1/news/articles/a", headers=[JSON], pieces=pieces)
    assert answer.status == 201


async def test_a_client_that_goes_away_writes_nothing(paper: Newspaper) -> None:
    for pieces in ([b'{"title": "x"}'], [b"{", b"}"]):
        answer = await send_raw(
            paper.app, "PUT", b"/v1/news/articles/a", headers=[JSON], pieces=pieces, ends=False
        )
        assert answer.status == 0
    assert not paper.plane.writes


async def test_bodies_of_get_and_delete_are_refused(paper: Newspaper) -> None:
    for method in ("GET", "DELETE"):
        answer = await paper.client.request(method, "articles/a", content=b"x")
        assert_problem(answer, 400, "invalid")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_unknown_parameters_are_named(paper: Newspaper, method: str) -> None:
    headers = {"content-type": "application/merge-patch+json"}
    if method == "PUT":
        headers = {"content-type": "application/json"}
    body = b'{"title": "x"}' if method.startswith("P") else None
    answer = await paper.client.request(
        method, "articles/a?frields=x", content=body, headers=headers
    )
    assert_problem(answer, 400, "invalid", "frields")
    assert not paper.plane.writes


async def test_fields_given_twice_are_joined(paper: Newspaper) -> None:
    await paper.put("a")
    twice = [(b"if-none-match", b'"x"'), (b"if-none-match", b"*")]
    answer = await send_raw(paper.app, "GET", b"/v1/news/articles/a", headers=twice)
    assert answer.status == 400


HEADERS = [
    b"accept",
    b"content-length",
    b"content-type",
    b"idempotency-key",
    b"if-match",
    b"if-none-match",
    b"origin",
    b"prefer",
    b"x-request-id",
]
header_values = st.binary(max_size=40).map(lambda b: b.translate(None, b"\r\n\x00"))


@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    method=st.sampled_from(["GET", "PUT", "PATCH", "POST", "DELETE", "HEAD", "OPTIONS", "X"]),
    tail=st.binary(max_size=30).map(lambda b: b.translate(None, b"? #")),
    query=st.binary(max_size=30),
    headers=st.dictionaries(
        st.sampled_from(HEADERS),
        header_values,
        max_size=4,
    ),
    body=st.binary(max_size=30),
)
async def test_no_input_is_a_server_error(
    paper: Newspaper,
    method: str,
    tail: bytes,
    query: bytes,
    headers: dict[bytes, bytes],
    body: bytes,
) -> None:
    path = b"/v1/news/articles" + tail
    answer = await send_raw(
        paper.app, method, path, query=query, headers=list(headers.items()), pieces=[body]
    )
    assert 200 <= answer.status < 500
    if answer.status >= 400 and method != "HEAD":
        assert _is_problem(answer)
