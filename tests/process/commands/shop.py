"""A shop at a running service, and the commands that work on it."""

from __future__ import annotations

import os
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.faults.caching.http_client import Connection
from tests.faults.operation.forked import Forked, Result, called
from tests.faults.service import Service

__all__ = ["SHOP", "Shop", "changed_schema"]

SHOP: dict[str, Any] = {
    "classes": {
        "customers": {"fields": {"name": {"type": "string", "index": True}}},
        "products": {
            "fields": {
                "name": {"type": "string", "required": True},
                "price": {"type": "decimal", "index": True},
                "stock": {
                    "type": "integer",
                    "minimum": 0,
                    "default": 0,
                    "group": "stock",
                    "annotations": [
                        {"require": "atomic_updates"},
                        {"metric": "write_throughput", "goal": 1000},
                    ],
                },
            }
        },
        "orders": {"fields": {"customer": {"type": "reference", "to": "customers"}}},
    }
}


def changed_schema(**fields: Any) -> dict[str, Any]:
    """Return the schema with its product fields updated."""
    schema = deepcopy(SHOP)
    schema["classes"]["products"]["fields"] |= fields
    return schema


@dataclass
class Shop:
    """A database of a running service, and a directory of files for commands."""

    service: Service
    scratch: Path
    database: str

    @property
    def environment(self) -> dict[str, str]:
        """Settings by which commands find the service."""
        data, admin = self.service.ports
        settings = {"PORTOLAN_PORT": data, "PORTOLAN_ADMIN_PORT": admin}
        return {**os.environ, **settings, "COLUMNS": "200"}

    async def start(
        self, *arguments: str, stdin: int | None = None, stdout: int | None = None
    ) -> Forked:
        """Start `portolan`, at a terminal if one is given."""
        return await Forked.start(arguments, self.environment, stdin=stdin, stdout=stdout)

    async def call(self, *arguments: str, text: bytes = b"") -> Result:
        """Call `portolan` with a text as its standard input."""
        return await called(arguments, self.environment, text)

    async def run(self, *arguments: str, text: bytes = b"") -> Result:
        """Call it; it must succeed."""
        result = await self.call(*arguments, text=text)
        assert result.exit_code == 0, result
        return result

    async def put(self, class_name: str, id_: str, values: dict[str, Any]) -> None:
        """Put an object, as an application does."""
        async with Connection(self.service.data) as data:
            path = f"/v1/{self.database}/{class_name}/{id_}"
            answer = await data.request("PUT", path, values)
        assert answer.status in (200, 201), answer

    def path(self, name: str) -> str:
        return str(self.scratch / name)

    def file(self, name: str, content: Any) -> str:
        path = self.scratch / name
        path.write_bytes(content if isinstance(content, bytes) else orjson.dumps(content))
        return str(path)

    async def open(self) -> None:
        await self.run("schema", "apply", self.database, self.file("shop.json", SHOP), "--yes")
