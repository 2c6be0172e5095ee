"""The JavaScript client against a real service, in Node."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from portolan_client import AsyncAdminClient
from tests.faults.service import Service
from tests.process.clients.both import NEWS
from tests.process.clients.node import run_node
from tests.process.commands.shop import SHOP

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "clients" / "js"
TESTS = Path(__file__).parent / "js"


async def test_the_client_in_node(started: Service, database: str) -> None:
    tests = map(str, sorted(TESTS.glob("*.test.mjs")))
    await run_node("--test", *tests, PORTOLAN_DATA=started.data, PORTOLAN_DATABASE=database)


@pytest.mark.parametrize(
    ("page", "name", "schema", "expected_lines"),
    [
        ("clients/js/README.md", "shop", SHOP, ["operator-refused", "Lamp 35", "create lamp"]),
        ("docs/javascript-client.md", "news", NEWS, ["New 1"]),
    ],
)
async def test_the_example_of_a_page_prints_the_documented_output(
    started: Service, page: str, name: str, schema: dict[str, Any], expected_lines: list[str]
) -> None:
    async with AsyncAdminClient(started.admin) as admin:
        await admin.put_schema(name, schema)
    [example] = re.findall(r"```js\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    example = example.replace("http://127.0.0.1:8080", started.data)
    example = example.replace('"portolan-client"', f'"{(PACKAGE / "src" / "index.js").as_uri()}"')
    assert await run_node("--input-type=module", "--eval", example) == expected_lines


def test_the_package_has_no_dependencies() -> None:
    package = json.loads((PACKAGE / "package.json").read_text())
    lock = json.loads((PACKAGE / "package-lock.json").read_text())
    assert not [name for name in package if "ependencies" in name]
    assert list(lock["packages"]) == [""]
    assert (lock["name"], lock["version"]) == (package["name"], package["version"])
    for source in (PACKAGE / "src").glob("*.js"):
        imports = re.findall(r'from "([^"]*)"', source.read_text())
        assert all((source.parent / name).is_file() for name in imports)
    assert (PACKAGE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_every_method_is_typed() -> None:
    methods = r"^  (?:async \*?|\*)?([a-z]\w*)[(<]"
    source = (PACKAGE / "src" / "client.js").read_text()
    types = (PACKAGE / "src" / "index.d.ts").read_text()
    declaration = re.search(
        r"^export class Client\b[^\n]* \{\n(.*?)^\}", types, re.MULTILINE | re.DOTALL
    )
    assert declaration is not None
    names = re.findall(methods, source, re.MULTILINE)
    assert sorted(re.findall(methods, declaration[1], re.MULTILINE)) == sorted(names)
