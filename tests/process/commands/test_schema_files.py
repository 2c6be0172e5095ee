"""`portolan schema` reads schemas as YAML, from several files and from a directory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson

from tests.process.commands.shop import SHOP, Shop
from tests.process.service import unique


async def test_a_schema_is_read_and_written_as_yaml(shop: Shop) -> None:
    text = b"""\
    classes:
      customers: {fields: {name: {type: string, index: true}}}
      # A comment.
      orders:
        fields:
          customer: {type: reference, to: customers}
          sent: {type: string, enum: [no, yes], default: no}
    """
    file = shop.file("shop.yaml", text)
    await shop.run("schema", "apply", shop.database, file, "--yes")
    document = orjson.loads((await shop.run("schema", "show", shop.database)).stdout)
    assert document["classes"]["orders"]["fields"]["sent"]["enum"] == ["no", "yes"]
    output = await shop.run("schema", "show", shop.database, "--yaml")
    copy = shop.file("again.yml", output.stdout.encode())
    same = await shop.run("schema", "diff", shop.database, copy)
    assert same.lines == [f"{shop.database} has this schema already, in version 1."]
    aliased = shop.file("aliased.yaml", b"classes: &all {}\ndefault: *all")
    refused = await shop.call("schema", "diff", shop.database, aliased)
    assert refused.exit_code == 2
    assert "line 1, column 10: anchors" in " ".join(refused.stderr.split())


async def test_the_schemas_of_a_directory_are_applied_twice(shop: Shop) -> None:
    other = unique("news")
    folder = shop.scratch / "schemas"
    folder.mkdir()
    (folder / f"{shop.database}.json").write_bytes(orjson.dumps(SHOP))
    (folder / f"{other}.yaml").write_text("classes: {articles: {}}")
    (folder / "..data").mkdir()  # Kubernetes mounts such links
    apply = ("schema", "deploy", str(folder), "--yes")
    first = await shop.run(*apply)
    for database in (shop.database, other):
        assert f"{database} has version 1 of its schema now." in first.stderr
    second = await shop.run(*apply)
    assert sorted(second.lines) == sorted(
        f"{database} has this schema already, in version 1." for database in (shop.database, other)
    )
    (folder / f"{other}.json").write_bytes(b"{}")
    assert "has two files" in (await shop.call(*apply)).stderr
    (folder / f"{other}.json").write_bytes(b"[]")
    (folder / f"{other}.yaml").unlink()
    assert (await shop.call(*apply)).exit_code == 2
    (folder / f"{other}.json").write_bytes(orjson.dumps({"classes": {"articles": {"no": 1}}}))
    refused = await shop.call(*apply)
    assert refused.exit_code == 1
    assert "/classes/articles/no" in refused.stderr


async def test_a_service_that_does_not_answer_yet_is_waited_for(shop: Shop) -> None:
    """Its proxy answers 503 at first; a refusal is not waited for."""
    answers = [b"HTTP/1.1 503 Busy", b"HTTP/1.1 401 Unauthorized"]
    requests: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        head = answers[min(len(requests), len(answers)) - 1]
        writer.write(head + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    folder = Path(shop.file("shop.json", SHOP)).parent
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        arguments = ("schema", "deploy", str(folder), "--yes", "--url", url)
        assert (
            await shop.call(*arguments)
        ).stderr == "That was not done: The service answered 503.\n"
        requests.clear()
        result = await shop.call(*arguments, "--wait", "60")
    retry, refused = result.stderr.splitlines()
    assert retry == "The service answered 503. Trying again, for 60 s at most."
    assert refused == "That was not done: The service answered 401."
    assert len(requests) == 2


async def test_a_schema_in_several_files_is_one(shop: Shop) -> None:
    files = [
        shop.file(f"{name}.json", {"classes": {name: class_}})
        for name, class_ in SHOP["classes"].items()
    ]
    mode = shop.file("mode.json", {"mode": "entity"})
    await shop.run("schema", "apply", shop.database, *files, mode, "--yes")
    schema = orjson.loads((await shop.run("schema", "show", shop.database)).stdout)
    assert (schema["mode"], schema["classes"].keys()) == ("entity", SHOP["classes"].keys())
    single = shop.file("shop.json", {**SHOP, "mode": "entity"})
    same = await shop.run("schema", "diff", shop.database, single)
    assert same.lines == [f"{shop.database} has this schema already, in version 1."]
    for repeated, location in ((files[0], "/classes/customers"), (mode, "/mode")):
        refused = await shop.call("schema", "diff", shop.database, single, repeated)
        assert refused.exit_code == 2
        assert f"has {location}, which a file before it has too" in " ".join(refused.stderr.split())
