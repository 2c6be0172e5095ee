"""`portolan import` and `export`: a shop is filled, and read back."""

from __future__ import annotations

import asyncio

import orjson

from tests.process.commands.shop import Shop

LINES = b"""{"id": "lamp", "name": "Lamp", "price": "30", "stock": 3}
{"id": "chair", "name": "Chair", "stock": -1}

{"id": "table", "name": "Table"}
"""


async def test_a_bad_line_is_reported_and_the_others_are_imported(opened: Shop) -> None:
    file = opened.file("products.ndjson", LINES)
    result = await opened.call("import", opened.database, "products", file)
    assert result.exit_code == 1
    assert result.stdout == "Objects imported: 2; lines refused: 1.\n"
    [problem] = result.stderr.splitlines()
    assert problem.startswith("Line 2: ")
    assert problem.count("/stock") == 1
    exported = await opened.done("export", opened.database, "products")
    assert [each["id"] for each in exported.objects] == ["lamp", "table"]
    assert exported.stderr == "Objects exported: 2.\n"
    rest = ("import", opened.database, "products", "-", "--skip", "3", "--json")
    skipped = await opened.done(*rest, text=LINES)
    assert orjson.loads(skipped.stdout) == {"imported": 1, "failed": 0, "next": 4}


async def test_an_export_can_be_imported(opened: Shop) -> None:
    """More than one request takes; with a line separator that is none in JSON."""
    names = ["a\u2028b", *(f"n{number}" for number in range(2_400))]
    lines = [orjson.dumps({"id": f"c{at:04}", "name": name}) for at, name in enumerate(names)]
    file = opened.file("customers.ndjson", b"\n".join(lines))
    await opened.done("import", opened.database, "customers", file)
    output = opened.scratch / "exported.ndjson"
    export = ("export", opened.database, "customers")
    await opened.done(*export, "--output", str(output))
    assert output.read_bytes() == b"\n".join(lines) + b"\n"
    part = await opened.done(*export, "--after", "c2398", "--fields", "name")
    assert part.objects == [{"id": "c2399", "name": "n2398"}, {"id": "c2400", "name": "n2399"}]


async def test_a_line_number_counts_all_lines(opened: Shop) -> None:
    lines = [b'{"id": "c%d", "name": "C"}' % number for number in range(1_500)]
    lines[1_300] = b'{"id": "c", "name": 5}'
    result = await opened.call("import", opened.database, "customers", text=b"\n".join(lines))
    assert result.exit_code == 1
    assert result.stderr.startswith("Line 1301: ")
    assert result.stdout == "Objects imported: 1,499; lines refused: 1.\n"


async def test_an_import_says_where_to_go_on(opened: Shop) -> None:
    """The service that answers the second request with a problem acts as one whose store stops."""
    problem = orjson.dumps({"detail": "redis does not answer", "imported": 4, "next": 5})
    done = orjson.dumps({"imported": 1_000, "failed": 0, "next": 1_000, "problems": []})
    answers = [b"200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(done), done)]
    answers.append(b"503 Gone\r\nContent-Length: %d\r\n\r\n%b" % (len(problem), problem))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answers:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            [length] = [line for line in head.split(b"\r\n") if line.startswith(b"content-length")]
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(b"HTTP/1.1 " + answers.pop(0))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0, limit=2**21) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        words = ("import", opened.database, "customers", "--url", url)
        result = await opened.call(*words, text=b"{}\n" * 1_500)
    assert result.exit_code == 1
    assert result.stderr == ("That was not done: redis does not answer To go on: --skip 1005\n")


async def test_an_export_goes_on_behind_the_last_object(opened: Shop) -> None:
    """A connection that breaks off within an object: what was whole is printed once."""
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    first, second = b'{"id": "a b"}\n{"id', b'{"id": "c"}\n'
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        body = first if len(requests) == 1 else second
        writer.write(head + b"%x\r\n%b\r\n" % (len(body), body))
        if len(requests) == 2:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        result = await opened.done("export", opened.database, "customers", "--url", url)
    assert [each["id"] for each in result.objects] == ["a b", "c"]
    assert [request.split()[1].partition(b"?")[2] for request in requests] == [b"", b"after=a+b"]


async def test_what_cannot_be_transferred_is_refused(opened: Shop) -> None:
    file = opened.file("lines", LINES)
    away = str(opened.scratch / "missing" / "file")
    for words, status in (
        (["import", opened.database, "toys", file], 1),
        (["export", opened.database, "toys"], 1),
        (["export", opened.database, "products", "--output", away], 1),
        (["import", opened.database, "products", away], 1),
        (["import", opened.database, "../products", file], 2),
    ):
        result = await opened.call(*words)
        assert result.exit_code == status, result
        assert result.stdout == ""
        assert status == 2 or len(result.stderr.splitlines()) == 1
