"""Responses in the coding that their client accepts, each coding with its own tag."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from threading import current_thread, main_thread

import httpx
import pytest

from app.http.compression import COMPRESSED_FROM
from app.http.connections import Connections, PortLimits
from tests.process.caching.newspaper import MERGE, OPTIONS, Newspaper, assert_problem, newspaper
from tests.process.data.http_edge import serving

GZIP = {"accept-encoding": "gzip"}
PLAIN = {"accept-encoding": "identity"}
LONG = {"text": "All the news that is fit to compress. " * 60}


@pytest.fixture
async def paper() -> AsyncIterator[Newspaper]:
    async with newspaper() as opened:
        yield opened


async def receive(
    client: httpx.AsyncClient, address: str, accept_encoding: str
) -> tuple[httpx.Headers, bytes]:
    """Return the header fields of a response, and its body as it was sent."""
    async with client.stream(
        "GET", address, headers={"accept-encoding": accept_encoding}
    ) as answer:
        return answer.headers, b"".join([chunk async for chunk in answer.aiter_raw()])


async def test_a_long_response_is_compressed_for_clients_that_accept_it(paper: Newspaper) -> None:
    await paper.put("a1", body=LONG)
    plain, content = await receive(paper.client, "articles/a1", "identity")
    coded, compressed = await receive(paper.client, "articles/a1", "br, gzip;q=0.5")
    assert "content-encoding" not in plain
    assert coded["content-encoding"] == "gzip"
    assert gzip.decompress(compressed) == content
    assert len(compressed) < len(content) / 5
    for headers, body in ((plain, content), (coded, compressed)):
        assert headers["content-length"] == str(len(body))
        assert "Accept-Encoding" in headers["vary"].split(", ")
    assert coded["etag"] == plain["etag"][:-1] + '-gzip"'


async def test_a_response_is_compressed_from_a_length_on(paper: Newspaper) -> None:
    await paper.put("a1", body={"text": ""})
    padding = COMPRESSED_FROM - len((await paper.client.get("articles/a1")).content)
    for length, coding in ((padding - 1, None), (padding, "gzip")):
        await paper.put("a1", body={"text": "x" * length})
        answer = await paper.client.get("articles/a1", headers=GZIP)
        assert answer.headers.get("content-encoding") == coding
        assert answer.headers["etag"].endswith('-gzip"') is (coding == "gzip")


@pytest.mark.parametrize(
    "accept_encoding", ["", "identity", "gzip;q=0", "br", "gzip;q=0.2, identity;q=0.8", "*;q=0"]
)
async def test_no_response_has_a_coding_that_is_not_accepted(
    paper: Newspaper, accept_encoding: str
) -> None:
    await paper.put("a1", body=LONG)
    answer = await paper.client.get("articles/a1", headers={"accept-encoding": accept_encoding})
    assert "content-encoding" not in answer.headers
    assert not answer.headers["etag"].endswith('-gzip"')


async def test_the_port_sends_compressed_responses(paper: Newspaper) -> None:
    await paper.put("a1", body=LONG)
    async with (
        serving(paper.app, Connections(PortLimits())) as (host, port),
        httpx.AsyncClient(base_url=f"http://{host}:{port}/v1/news/") as client,
    ):
        plain, content = await receive(client, "articles/a1", "identity")
        coded, compressed = await receive(client, "articles/a1", "gzip")
        head = await client.head("articles/a1", headers=GZIP)
    assert gzip.decompress(compressed) == content
    assert coded["content-length"] == head.headers["content-length"] == str(len(compressed))
    assert coded["etag"] == head.headers["etag"] != plain["etag"]


async def test_head_names_the_coding_and_the_length_of_get(paper: Newspaper) -> None:
    await paper.put("a1", body=LONG)
    get = await paper.client.get("articles/a1", headers=GZIP)
    head = await paper.client.head("articles/a1", headers=GZIP)
    assert head.content == b""
    for name in ("etag", "content-length", "content-encoding", "content-type", "vary"):
        assert head.headers[name] == get.headers[name]


async def test_not_modified_names_the_copy_that_the_client_has(paper: Newspaper) -> None:
    plain = (await paper.put("a1", body=LONG)).headers["etag"].replace("-gzip", "")
    coded = plain[:-1] + '-gzip"'
    for condition, expected in (
        (coded, coded),
        (f"W/{coded}", coded),
        (plain, plain),
        (f'"x", {plain}, {coded}', coded),
        ("*", plain),
    ):
        same = await paper.client.get("articles/a1", headers=GZIP | {"if-none-match": condition})
        assert (same.status_code, same.content) == (304, b""), condition
        assert same.headers["etag"] == expected, condition
        assert "Accept-Encoding" in same.headers["vary"].split(", ")
    changed = GZIP | {"if-none-match": coded.replace("-gzip", "-gzip-gzip")}
    assert (await paper.client.get("articles/a1", headers=changed)).status_code == 200


async def test_no_copy_is_confirmed_that_the_client_cannot_decode(paper: Newspaper) -> None:
    """A cache sends the tags of all its copies for any client (RFC 9111, 4.3.1)."""
    await paper.put("a1", body=LONG)
    plain = (await paper.client.get("articles/a1", headers=PLAIN)).headers["etag"]
    coded = plain[:-1] + '-gzip"'
    answer = await paper.client.get("articles/a1", headers=PLAIN | {"if-none-match": coded})
    assert (answer.status_code, answer.headers["etag"]) == (200, plain)
    both = PLAIN | {"if-none-match": f"{coded}, {plain}"}
    same = await paper.client.get("articles/a1", headers=both)
    assert (same.status_code, same.headers["etag"]) == (304, plain)


async def test_the_tag_of_any_coding_is_a_condition_of_a_write(paper: Newspaper) -> None:
    await paper.put("a1", body=LONG)
    coded = (await paper.client.get("articles/a1", headers=GZIP)).headers["etag"]
    assert coded.endswith('-gzip"')
    excluded = PLAIN | {"if-none-match": coded}
    refused = await paper.client.put("articles/a1", json={"title": "2"}, headers=excluded)
    assert_problem(refused, 412, "precondition-failed")
    body = {"title": "2", "body": LONG}
    written = await paper.client.put("articles/a1", json=body, headers={"if-match": coded})
    assert written.status_code == 200
    assert written.headers["etag"].endswith('-gzip"')
    repeated = await paper.client.put("articles/a1", json=body, headers={"if-match": coded})
    assert_problem(repeated, 412, "precondition-failed")
    current = written.headers["etag"]
    patched = await paper.patch("articles/a1", MERGE, {"title": "3"}, if_match=current)
    assert patched.status_code == 200


async def test_the_tag_of_any_coding_is_a_condition_in_a_batch(paper: Newspaper) -> None:
    await paper.put("a1", body=LONG)
    coded = (await paper.client.get("articles/a1", headers=GZIP)).headers["etag"]
    read = {"op": "get", "class": "articles", "id": "a1", "if_none_match": coded}
    delete = {"op": "delete", "class": "articles", "id": "a1", "if_match": coded}
    answer = await paper.client.post("batch", json={"operations": [read, delete]})
    assert [result["status"] for result in answer.json()] == [304, 204]


async def test_a_query_is_compressed_and_revalidated(paper: Newspaper) -> None:
    for id_ in ("a1", "a2"):
        await paper.put(id_, body=LONG)
    answer = await paper.client.get("articles", headers=GZIP)
    assert answer.headers["content-encoding"] == "gzip"
    assert [item["id"] for item in answer.json()["items"]] == ["a1", "a2"]
    tag = answer.headers["etag"]
    same = await paper.client.get("articles", headers=GZIP | {"if-none-match": tag})
    assert (same.status_code, same.headers["etag"]) == (304, tag)


@pytest.mark.parametrize(("length", "in_thread"), [(2**14, False), (2**17, True)])
async def test_a_large_response_is_compressed_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, length: int, in_thread: bool
) -> None:
    threads = []

    def compress(body: bytes, level: int, **options: int) -> bytes:
        threads.append(current_thread())
        return zlib.compress(body, level, wbits=31)

    monkeypatch.setattr(gzip, "compress", compress)
    async with newspaper(replace(OPTIONS, max_body_bytes=2**20)) as paper:
        answer = await paper.client.put(
            "articles/a1", json={"title": "1", "body": {"text": "x" * length}}, headers=GZIP
        )
    assert len(answer.json()["body"]["text"]) == length
    assert [thread is not main_thread() for thread in threads] == [in_thread]


async def test_streams_are_not_compressed(paper: Newspaper) -> None:
    for number in range(4):
        await paper.put(f"a{number}", body=LONG)
    headers, body = await receive(paper.client, "articles/export", "gzip")
    assert "content-encoding" not in headers
    assert len(body.splitlines()) == 4


async def test_compression_can_be_turned_off() -> None:
    async with newspaper(replace(OPTIONS, compresses=False)) as paper:
        await paper.put("a1", body=LONG)
        answer = await paper.client.get("articles/a1", headers=GZIP)
        assert "content-encoding" not in answer.headers
        assert "Accept-Encoding" not in answer.headers["vary"]
        coded = answer.headers["etag"][:-1] + '-gzip"'
        same = await paper.client.get("articles/a1", headers=GZIP | {"if-none-match": coded})
        assert (same.status_code, same.headers["etag"]) == (304, coded), (
            "the tag is of another replica"
        )
