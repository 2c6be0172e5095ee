"""`portolan import` and `export`: a shop is filled, and read back."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import tty
from functools import partial
from itertools import count
from pathlib import Path

import orjson
import pytest
import typer

from app.commands import reconnection
from app.commands.transfer import import_
from tests.faults.conditions import eventually
from tests.faults.losing import losing
from tests.process.caching.serving import Reply, Script, served
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
    exported = await opened.run("export", opened.database, "products")
    assert [object_["id"] for object_ in exported.objects] == ["lamp", "table"]
    assert exported.stderr == "Objects exported: 2.\n"
    resume = ("import", opened.database, "products", "-", "--skip", "3", "--json")
    resumed = await opened.run(*resume, text=LINES)
    assert orjson.loads(resumed.stdout) == {"imported": 1, "failed": 0, "next": 4}


async def test_an_export_can_be_imported(opened: Shop) -> None:
    """Several requests, with U+2028, which ends no line of JSON."""
    names = ["a\u2028b", *(f"n{number}" for number in range(2_400))]
    lines = [
        orjson.dumps({"id": f"c{number:04}", "name": name}) for number, name in enumerate(names)
    ]
    file = opened.file("customers.ndjson", b"\n".join(lines))
    await opened.run("import", opened.database, "customers", file)
    output = opened.scratch / "exported.ndjson"
    export = ("export", opened.database, "customers")
    await opened.run(*export, "--output", str(output))
    assert output.read_bytes() == b"\n".join(lines) + b"\n"
    last_objects = await opened.run(*export, "--after", "c2398", "--fields", "name")
    assert last_objects.objects == [
        {"id": "c2399", "name": "n2398"},
        {"id": "c2400", "name": "n2399"},
    ]


async def test_a_line_number_counts_all_lines(opened: Shop) -> None:
    lines = [b'{"id": "c%d", "name": "C"}' % number for number in range(1_500)]
    lines[1_300] = b'{"id": "c", "name": 5}'
    result = await opened.call("import", opened.database, "customers", text=b"\n".join(lines))
    assert result.exit_code == 1
    assert result.stderr.startswith("Line 1301: ")
    assert result.stdout == "Objects imported: 1,499; lines refused: 1.\n"


async def test_lines_without_ids_are_the_same_objects_when_they_are_imported_again(
    opened: Shop,
) -> None:
    """Equal lines are separate objects, also under another import id or in another file."""
    lines = b'{"name": "B"}\n{"name": "B"}\n{"name": "A"}\n'
    file = opened.file("customers.ndjson", lines)
    arguments = ("import", opened.database, "customers")
    for source in ((file,), (file,), (opened.file("copy.ndjson", lines),)):
        await opened.run(*arguments, *source)
    saved = (await opened.run("export", opened.database, "customers")).objects
    assert [object_["name"] for object_ in saved] == ["B", "B", "A"]
    for _ in "12":
        await opened.run(*arguments, file, "--import-id", "a second copy")
    longer = opened.file("customers.ndjson", lines + b'{"name": "B"}\n')
    await opened.run(*arguments, longer)
    saved = (await opened.run("export", opened.database, "customers")).objects
    assert len(saved) == 3 + 3 + 4


async def test_a_corrected_file_can_be_imported_under_the_same_id(opened: Shop) -> None:
    arguments = ("import", opened.database, "products")
    lines = b'{"name": "Lamp"}\n{"name": 5}\n{"name": "Table"}\n'
    refused = await opened.call(*arguments, opened.file("products.ndjson", lines))
    assert refused.exit_code == 1
    [import_id] = re.findall(r"with these lines corrected: --import-id (\w+)\n", refused.stderr)
    corrected = opened.file("products.ndjson", lines.replace(b"5", b'"Chair"'))
    await opened.run(*arguments, corrected, "--import-id", import_id)
    saved = (await opened.run("export", opened.database, "products")).objects
    assert [object_["name"] for object_ in saved] == ["Lamp", "Chair", "Table"]


async def test_an_import_whose_answers_are_lost_puts_each_line_once(opened: Shop) -> None:
    """The lines come through a pipe, which can be read only once, and have no ids."""
    read, write = os.pipe()
    async with losing(opened.service.data, losses=2) as proxy:
        arguments = ("import", opened.database, "customers", "--url", proxy.url)
        process = await opened.start(*arguments, stdin=read)
        os.close(read)
        lines = b'{"name": "C"}\n' * 1_500  # two requests; the pipe holds all of them
        os.write(write, lines)
        os.close(write)
        async with asyncio.timeout(120):
            status, output = await process.ended()
    assert status == 0, output
    assert output.endswith("Objects imported: 1,500; lines refused: 0.\n")
    assert output.count("Trying again, for 60 s at most.") == 1
    assert len(proxy.bodies) == 4
    saved = (await opened.run("export", opened.database, "customers")).objects
    assert len(saved) == 1_500


async def test_an_import_that_is_interrupted_says_how_to_go_on(opened: Shop) -> None:
    arguments = ("import", opened.database, "customers")
    read, write = os.pipe()
    process = await opened.start(*arguments, stdin=read)
    os.close(read)
    lines = b'{"name": "C"}\n' * 1_200
    os.write(write, lines)

    async def has_started() -> bool:
        return bool((await opened.run("export", opened.database, "customers")).objects)

    await eventually(has_started)
    process.send(signal.SIGINT)
    async with asyncio.timeout(120):
        status, output = await process.ended()
    os.close(write)
    assert status == 130
    [(skip, import_id)] = re.findall(r"To go on: --skip (\d+) --import-id (\w+)\n", output)
    options = ("--skip", skip, "--import-id", import_id)
    await opened.run(*arguments, *options, text=lines)
    saved = (await opened.run("export", opened.database, "customers")).objects
    assert len(saved) == 1_200


async def test_an_import_that_fails_at_a_long_line_has_put_the_lines_before(opened: Shop) -> None:
    arguments = ("import", opened.database, "customers")
    lines = [b'{"name": "C"}\n'] * 1_002
    long_line = b'{"name": "%b"}\n' % (b"C" * 2**24)
    broken = opened.file("customers.ndjson", b"".join([*lines, long_line, *lines[:2]]))
    result = await opened.call(*arguments, broken)
    assert result.exit_code == 1
    assert result.stdout == ""
    reason, separator, hint = result.stderr.partition(" To go on: ")
    assert reason == "That was not done: line 1003 has more than 16,777,216 bytes."
    [import_id] = re.findall(r"^--skip 1002 --import-id (\w+)\n$", hint)
    assert separator
    assert len((await opened.run("export", opened.database, "customers")).objects) == 1_002
    corrected = opened.file("customers.ndjson", b"".join(lines + lines[:2]))
    resumed = await opened.run(*arguments, corrected, "--skip", "1002", "--import-id", import_id)
    assert resumed.stdout == "Objects imported: 2; lines refused: 0.\n"


async def test_an_import_whose_source_breaks_off_says_how_to_go_on(opened: Shop) -> None:
    """A hung-up terminal has no end of file: reading on fails."""
    arguments = ("import", opened.database, "customers")
    lines = b'{"name": "C"}\n' * 3
    source, other_end = os.openpty()
    tty.setraw(other_end)
    process = await opened.start(*arguments, stdin=source)
    os.close(source)
    os.write(other_end, lines)
    os.close(other_end)
    async with asyncio.timeout(120):
        status, output = await process.ended()
    assert status == 1
    assert output.startswith("That was not done: what follows line 3 cannot be read: ")
    [import_id] = re.findall(r" To go on: --skip 3 --import-id (\w+)\n", output)
    await opened.run(*arguments, "--import-id", import_id, text=lines + b'{"name": "D"}\n')
    saved = (await opened.run("export", opened.database, "customers")).objects
    assert [object_["name"] for object_ in saved] == ["C", "C", "C", "D"]


async def test_an_import_is_waited_for_while_it_progresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each request is refused after one line, 400 s after the previous one."""
    pauses: list[float] = []
    monkeypatch.setattr(reconnection, "sleep", pauses.append)
    monkeypatch.setattr(reconnection, "monotonic", partial(next, count(step=400)))
    progress = {"imported": 1, "failed": 0, "next": 1, "problems": []}
    busy = Reply(429, orjson.dumps({**progress, "detail": "Not now."}), {"retry-after": "5"})
    file = tmp_path / "lines"
    file.write_bytes(b'{"id": "a"}\n' * 4)
    async with served(Script(busy, busy, busy, Reply(200, orjson.dumps(progress)))) as url:
        with pytest.raises(typer.Exit) as raised:
            await asyncio.to_thread(import_, "shop", "products", file, url=url)
    assert raised.value.exit_code == 0
    assert pauses == [5.0] * 3


async def test_an_import_says_where_to_go_on(opened: Shop) -> None:
    """A stub answers the second request as a service whose storage is full."""
    problem = orjson.dumps({"detail": "no room", "imported": 4, "next": 5})
    success = orjson.dumps({"imported": 1_000, "failed": 0, "next": 1_000, "problems": []})
    answers = [b"200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(success), success)]
    answers.append(b"507 Full\r\nContent-Length: %d\r\n\r\n%b" % (len(problem), problem))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answers:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            [length] = [line for line in head.split(b"\r\n") if line.startswith(b"content-length")]
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(b"HTTP/1.1 " + answers.pop(0))
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0, limit=2**21) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        arguments = ("import", opened.database, "customers", "--url", url)
        lines = b'{"id": "c"}\n' * 1_500
        result = await opened.call(*arguments, text=lines)
    assert result.exit_code == 1
    assert result.stderr == "That was not done: no room To go on: --skip 1005\n"


async def test_an_export_goes_on_behind_the_last_object(opened: Shop) -> None:
    """The connection breaks off within an object: complete objects are printed once."""
    type_ = b"Content-Type: application/x-ndjson\r\n"
    head = b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % type_
    first, second = b'{"id": "a b"}\n{"id', b'{"id": "c"}\n'
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        body = first if len(requests) == 1 else second
        writer.write(head + b"%x\r\n%b\r\n" % (len(body), body))
        if len(requests) == 2:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        result = await opened.run("export", opened.database, "customers", "--url", url)
    assert [object_["id"] for object_ in result.objects] == ["a b", "c"]
    assert [request.split()[1].partition(b"?")[2] for request in requests] == [b"", b"after=a+b"]


async def test_invalid_transfers_are_refused(opened: Shop) -> None:
    file = opened.file("lines", LINES)
    missing = str(opened.scratch / "missing" / "file")
    for arguments, status in (
        (["import", opened.database, "toys", file], 1),
        (["export", opened.database, "toys"], 1),
        (["export", opened.database, "products", "--output", missing], 1),
        (["import", opened.database, "products", missing], 1),
        (["import", opened.database, "../products", file], 2),
        (["import", opened.database, "products", file, "--import-id", ""], 2),
        (["import", opened.database, "products", file, "--import-id", "a\tb"], 2),
        (["import", opened.database, "products", file, "--import-id", "a" * 256], 2),
    ):
        result = await opened.call(*arguments)
        assert result.exit_code == status, result
        assert result.stdout == ""
        assert status == 2 or len(result.stderr.splitlines()) == 1
