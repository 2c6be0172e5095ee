"""`portolan schema` and `why`, against the admin API of a running service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from app.admin.application import create_admin_app
from app.cli import command_line
from mediator.model.operations import Put
from tests.process.caching.serving import served
from tests.process.service import Service, unique

SHOP: dict[str, Any] = {
    "classes": {
        "products": {"fields": {"stock": {"type": "integer"}}},
        "carts": {"fields": {"total": {"type": "decimal"}}},
    }
}

Run: TypeAlias = Callable[..., Coroutine[Any, Any, Any]]


@pytest.fixture(scope="module")
async def url(mediator: Service) -> AsyncIterator[str]:
    app = create_admin_app(mediator.mediator.control, CollectorRegistry())
    async with served(app) as address:
        yield address


@pytest.fixture
def run(url: str) -> Run:
    """Run the command line beside the service, which answers on this loop."""

    async def called(*arguments: str, text: str | None = None) -> Any:
        words = [*arguments, "--url", url]
        return await asyncio.to_thread(CliRunner().invoke, command_line(), words, text)

    return called


@pytest.fixture
async def shop(mediator: Service) -> str:
    name = unique()
    await mediator.mediator.control.set_schema(name, SHOP)
    return name


def written(directory: Path, **products: Any) -> str:
    """Write a schema that changes the stock's members, and has no carts."""
    fields = {"stock": {"type": "integer", **products}}
    file = directory / "shop.json"
    file.write_text(json.dumps({"classes": {"products": {"fields": fields}}}))
    return str(file)


async def test_a_schema_is_shown_as_it_is_in_force(run: Run, shop: str) -> None:
    shown = await run("schema", "show", shop)
    assert json.loads(shown.output)["classes"].keys() == SHOP["classes"].keys()
    listed = await run("schema", "list")
    assert listed.exit_code == 0
    assert shop in listed.output


async def test_a_comparison_changes_nothing(
    run: Run, shop: str, mediator: Service, tmp_path: Path
) -> None:
    compared = await run("schema", "diff", shop, written(tmp_path, minimum=0))
    assert compared.exit_code == 0, compared.output
    assert "- carts\n" in compared.output
    assert "~ products.stock minimum: none → 0" in compared.output
    assert (await mediator.mediator.control.schema(shop)).version == 1
    unchanged = await run("schema", "diff", shop, "-", text=json.dumps(SHOP))
    assert unchanged.output == "Nothing changes.\n"


async def test_a_schema_is_applied_once_that_is_confirmed(
    run: Run, shop: str, mediator: Service, tmp_path: Path
) -> None:
    file = written(tmp_path, index=True)
    asked = await run("schema", "apply", shop, file)
    assert asked.exit_code == 2
    assert "pass --yes" in asked.output
    assert (await mediator.mediator.control.schema(shop)).version == 1
    applied = await run("schema", "apply", shop, file, "--yes")
    assert applied.exit_code == 0, applied.output
    assert "Version 2 is in force." in applied.output
    again = await run("schema", "apply", shop, file, "--yes")
    assert again.output == "Nothing changes.\n"
    assert (await mediator.mediator.control.schema(shop)).version == 2


async def test_a_change_of_somebody_else_is_not_overwritten(
    run: Run, shop: str, mediator: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes after the changes were shown, and before they are confirmed."""
    other = {"classes": {**SHOP["classes"], "orders": {}}}
    loop = asyncio.get_running_loop()

    def confirm(_question: str, *, yes: bool) -> None:
        assert not yes
        change = mediator.mediator.control.set_schema(shop, other)
        asyncio.run_coroutine_threadsafe(change, loop).result()

    monkeypatch.setattr("app.commands.schema.confirm", confirm)
    refused = await run("schema", "apply", shop, written(tmp_path))
    assert refused.exit_code == 1, refused.output
    assert "orders" in (await mediator.mediator.control.schema(shop)).document["classes"]


async def test_a_new_database_is_compared_with_nothing(run: Run, tmp_path: Path) -> None:
    applied = await run("schema", "apply", unique(), written(tmp_path), "--yes")
    assert applied.exit_code == 0, applied.output
    assert "+ products.stock" in applied.output
    assert "  products.stock on " in applied.output
    assert "Version 1 is in force." in applied.output


async def test_what_would_be_refused_is_named(
    run: Run, shop: str, mediator: Service, tmp_path: Path
) -> None:
    put = Put(shop, "products", "lamp", unique(), values={"stock": -1})
    await mediator.mediator.data.write(put)
    file = written(tmp_path, minimum=0)
    for command in (("diff", shop, file), ("apply", shop, file, "--yes")):
        refused = await run("schema", *command)
        assert refused.exit_code == 1
        assert "/classes/products/fields/stock/minimum: 1, such as lamp." in refused.output
    unchecked = await run("schema", "apply", shop, file, "--yes", "--unchecked")
    assert unchecked.exit_code == 0, unchecked.output


async def test_a_database_is_dropped_after_its_objects_were_counted(
    run: Run, shop: str, mediator: Service
) -> None:
    put = Put(shop, "products", "lamp", unique(), values={})
    await mediator.mediator.data.write(put)
    asked = await run("schema", "drop", shop)
    assert (asked.exit_code, "- products, objects: 1" in asked.output) == (2, True)
    assert (await run("schema", "drop", shop, "--yes")).exit_code == 0
    gone = await run("schema", "show", shop)
    assert gone.exit_code == 1
    assert f"There is no database {shop}." in gone.output


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "is no JSON"),
        (b'{"classes": {"a": {"fields": {"b": {"type": "nope"}}}}}', "/classes/a/fields/b/type"),
    ],
)
async def test_mistakes_in_a_file_are_located(
    run: Run, tmp_path: Path, content: bytes, reason: str
) -> None:
    file = tmp_path / "shop.json"
    file.write_bytes(content)
    refused = await run("schema", "diff", unique(), str(file))
    assert refused.exit_code in (1, 2)
    assert reason in refused.output


async def test_a_placement_is_explained_on_a_page(run: Run, shop: str) -> None:
    explained = await run("why", f"{shop}.products.stock")
    assert explained.exit_code == 0, explained.output
    assert f"{shop}.products.stock is on " in explained.output
    for system in ("postgres", "redis", "mongo"):
        assert system in explained.output
    missing = await run("why", f"{shop}.nope")
    assert (missing.exit_code, "There is no node nope." in missing.output) == (1, True)
