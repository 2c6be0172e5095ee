"""A shop whose schema changes while clients stay with its earlier versions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.control.port import ChangeOptions
from mediator.schema.renames import parse_renames
from tests.process.service import Service, unique

__all__ = ["Shop", "goods"]


def goods(*names: str, **members: dict[str, Any]) -> dict[str, Any]:
    """Return a class with integer fields of these names, and other fields."""
    plain = {name: {"type": "integer", "index": True} for name in names}
    return {"goods": {"fields": {**plain, **members}}}


@dataclass
class Shop:
    """A database of a service, and its data API."""

    service: Service
    database: str
    api: DataApi

    @classmethod
    def of(cls, service: Service, **parts: Any) -> Shop:
        mediator = service.mediator
        api = DataApi(
            mediator.data,
            DataOptions(cursor_key=b"key"),
            lambda _: None,
            DataServices(transact=mediator.transactions.run, **parts),
            former_schemas=mediator.former_schemas,
        )
        return cls(service, unique("db"), api)

    async def change(
        self, classes: dict[str, Any], *renames: str, drop: tuple[str, ...] = (), **members: Any
    ) -> int:
        """Set the schema; return its version."""
        options = ChangeOptions(drop=frozenset(drop), rename=parse_renames(renames))
        control, document = self.service.mediator.control, {"classes": classes, **members}
        return (await control.set_schema(self.database, document, options=options)).version

    async def send(
        self, method: str, path: str, version: int | None = None, **request: Any
    ) -> httpx.Response:
        """Send a request below the database, pinned to a version."""
        headers = {**request.pop("headers", {})}
        if version is not None:
            headers["portolan-schema"] = str(version)
        transport = httpx.ASGITransport(self.api)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            url = f"/v1/{self.database}/{path}"
            return await client.request(method, url, headers=headers, **request)

    async def shown(self, path: str, version: int | None = None) -> Any:
        """Return the document of a read."""
        answer = await self.send("GET", path, version)
        assert answer.status_code == 200, answer.text
        return answer.json()
