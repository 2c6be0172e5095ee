"""Pages of a proxy, where commands expect objects, changes or results."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import orjson

from tests.faults.operation.forked import Forked, Result, called
from tests.process.caching.serving import Reply, Script, problem, served

ENVIRONMENT = {**os.environ, "COLUMNS": "200"}
PAGE = Reply(200, b"<p>We are back soon.</p>\n", {"content-type": "text/html; charset=utf-8"})
RUN = Reply(
    200,
    orjson.dumps({"id": "r1", "state": "done", "rows": 2}),
    {"content-type": "application/json"},
)


async def call(script: Script, *arguments: str) -> Result:
    async with served(script) as url:
        return await called([*arguments, "--url", url], ENVIRONMENT)


async def test_an_export_does_not_replace_a_file_by_a_page(tmp_path: Path) -> None:
    saved = tmp_path / "saved.ndjson"
    saved.write_text("{}\n")
    result = await call(Script(PAGE), "export", "shop", "products", "--output", str(saved))
    assert result.exit_code == 1
    assert "is no application/x-ndjson: is it a proxy's?" in result.stderr
    assert saved.read_text() == "{}\n"


async def test_the_result_of_a_run_is_not_replaced_by_a_page(tmp_path: Path) -> None:
    saved = tmp_path / "result.csv"
    saved.write_text("a\n")
    arguments = ("job", "show", "r1", "--database", "club", "--out", str(saved))
    result = await call(Script(RUN, PAGE), *arguments)
    assert result.exit_code == 1
    assert "is no text/csv: is it a proxy's?" in result.stderr
    assert saved.read_text() == "a\n"


async def test_a_page_ends_the_following_of_changes() -> None:
    async with served(Script(PAGE)) as url:
        process = await Forked.start(["tail", "shop", "--url", url], ENVIRONMENT)
        async with asyncio.timeout(60):
            status, output = await process.ended()
    assert status == 1
    assert "is no text/event-stream: is it a proxy's?" in output


async def test_a_redirect_is_reported() -> None:
    result = await call(Script(Reply(302, b"<p>", {"location": "/login"})), "tail", "shop")
    assert result.exit_code == 1
    assert result.stderr == "That was not done: The service answered 302.\n"


async def test_tail_says_how_to_go_on_when_it_gives_up() -> None:
    change = {"class": "c", "object": "o", "kind": "delete", "time": "now"}
    document = orjson.dumps({**change, "before": None, "after": None})
    event = b"id: p;1\ndata: %b\n\n" % document
    feed = Reply(200, event, {"content-type": "text/event-stream; charset=utf-8"})
    result = await call(Script(feed, problem(403, "forbidden")), "tail", "shop")
    assert result.exit_code == 1
    assert result.lines == ["now  delete   c/o"]
    assert result.stderr.endswith("so it is To go on: --after 'p;1'\n")


async def test_an_export_says_how_to_go_on_when_it_gives_up(tmp_path: Path) -> None:
    """Only a complete file appears: an interrupted one offers nothing to resume."""
    body, type_ = b'{"id":"a"}\n{"id":"b b"}\n{"id":', {"content-type": "application/x-ndjson"}
    broken = Reply(200, body, type_, complete=False)
    arguments = ("export", "shop", "products")
    forbidden = problem(403, "forbidden")
    result = await call(Script(broken, forbidden), *arguments)
    assert result.exit_code == 1
    assert result.lines == ['{"id":"a"}', '{"id":"b b"}']
    assert result.stderr.endswith(" To go on: --after 'b b'\n")
    saved = tmp_path / "saved.ndjson"
    result = await call(Script(broken, forbidden), *arguments, "--output", str(saved))
    assert result.exit_code == 1
    assert "To go on" not in result.stderr
    assert not saved.exists()


async def test_a_query_waits_for_a_service_that_is_busy() -> None:
    busy = problem(429, "rate-limited")
    page = Reply(
        200,
        orjson.dumps({"items": [{"id": "a"}], "next": None, "total": 1, "count": "exact"}),
        {"content-type": "application/json"},
    )
    for arguments in ((), ("--count", "exact")):
        result = await call(Script(busy, page), "query", "shop", "products", *arguments)
        assert result.exit_code == 0, result
        assert len(result.lines) == 1
        assert "Trying again" in result.stderr


async def test_a_key_that_no_header_can_hold_is_refused_and_not_shown() -> None:
    arguments = ["query", "shop", "products", "--url", "http://127.0.0.1:1"]
    result = await called(arguments, {**ENVIRONMENT, "PORTOLAN_KEY": "clé-de-voûte"})
    assert result.exit_code == 1
    assert "it is no key" in result.stderr
    assert "voûte" not in result.stderr
    unanswered = await called(arguments, {**ENVIRONMENT, "PORTOLAN_KEY": ""})
    assert "does not answer" in unanswered.stderr
