"""`portolan verify-references`: dangling references, and their repair."""

from __future__ import annotations

import orjson

from tests.process.commands.shop import Shop


async def test_dangling_references_are_found_and_repaired(opened: Shop) -> None:
    await opened.put("customers", "ada", {"name": "Ada"})
    await opened.put("orders", "fine", {"customer": "ada"})
    await opened.put("orders", "none", {})
    for n in range(7):
        await opened.put("orders", f"lost{n}", {"customer": "nobody"})
    command = ("verify-references", opened.database)
    result = await opened.call(*command)
    assert result.exit_code == 1
    [line] = result.lines
    assert line.startswith("orders.customer: objects 9; dangling 7: lost0 (to nobody), lost1")

    after = await opened.call(*command, "orders.customer", "--after", "lost4", "--json")
    [counts] = orjson.loads(after.stdout)
    assert counts.pop("sample") == [{"id": f"lost{n}", "to": "nobody"} for n in (5, 6)]
    assert counts == {
        "field": "orders.customer",
        "objects": 3,
        "dangling": 2,
        "repaired": 0,
        "failed": 0,
    }
    deleted = await opened.run(
        *command, "orders.customer", "--after", "lost4", "--repair", "delete"
    )
    assert deleted.stdout.startswith("orders.customer: objects 3; dangling 2; repaired 2: lost5")
    nullified = await opened.run(*command, "--repair", "nullify")
    assert nullified.stdout.startswith("orders.customer: objects 7; dangling 5; repaired 5: lost0")
    assert (await opened.run(*command)).stdout == "orders.customer: objects 7; dangling 0\n"

    careless = await opened.call(*command, "--after", "a")
    assert careless.exit_code == 2
    refused = await opened.call(*command, "products.name")
    assert refused.exit_code == 1
    assert "products.name refers to no objects" in refused.stderr
