"""`portolan update` and `portolan delete`: objects that meet conditions, from the command line."""

from __future__ import annotations

import orjson

from tests.process.commands.shop import Shop


async def test_objects_are_counted_changed_and_deleted(opened: Shop) -> None:
    for number in range(6):
        body = {"name": f"n{number}", "price": str(number), "stock": number % 2}
        await opened.put("products", f"p{number}", body)
    of = (opened.database, "products", "--where", "price.lt=4")
    counted = await opened.done("update", *of, "--dry-run", '{"name": "cheap"}')
    assert counted.stdout == "Objects that would be changed: 4: p0, p1, p2, p3\n"
    changed = await opened.done("update", *of, '{"name": "cheap"}')
    assert changed.stdout == "Objects changed: 4; refused: 0.\n"

    sold = await opened.call("update", *of, "--operators", "--json", '{"stock": {"inc": -1}}')
    assert sold.exit_code == 1
    counts = {"matched": 4, "written": 2, "failed": 2, "sample": []}
    assert orjson.loads(sold.stdout) == counts
    assert [line.split(":")[0] for line in sold.stderr.splitlines()] == ["p0", "p2"]

    deleted = await opened.done("delete", *of, "--after", "p1")
    assert deleted.stdout == "Objects deleted: 2; refused: 0.\n"
    careless = await opened.call("delete", opened.database, "products")
    assert careless.exit_code == 1
    assert "all must be true to write every object" in careless.stderr
    assert (await opened.done("delete", opened.database, "products", "--all")).lines == [
        "Objects deleted: 4; refused: 0."
    ]
