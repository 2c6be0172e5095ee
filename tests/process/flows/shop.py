"""A shop whose orders are messages: the paper's plan over HTTP, and its outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from app.api.options import DataOptions, DataServices
from app.api.router import DataApi
from mediator.coordination.connecting import Coordination
from mediator.stores.port import SystemConfig
from tests.faults.conditions import WITHIN_S, eventually
from tests.process.event_streams import read_events
from tests.process.service import Service, field_on, service
from tests.unit.flows.plans import ORDERS

CLASSES: dict[str, Any] = {
    "credits": {
        "fields": {
            "customer": field_on("postgres", index=True),
            "amount": field_on("postgres", "integer"),
        }
    },
    "orders": {
        "fields": {
            "customer": field_on("postgres"),
            "credit": field_on("postgres", "integer"),
        }
    },
}
CREDITS = {"A": 10, "B": 20, "C": 30}
CUSTOMERS = ("A", "B", "A", "C", "B", "C")
"""Of the messages m1 to m6 in the paper's figures."""


@dataclass
class Shop:
    service: Service
    database: str
    api: DataApi
    client: httpx.AsyncClient

    @property
    def coordination(self) -> Coordination:
        shared = self.service.mediator.coordination
        assert shared is not None
        return shared

    async def create(self, plan: Sequence[dict[str, Any]] = ORDERS, **members: Any) -> str:
        flow = {"plan": list(plan), "latency_s": 10, **members}
        answer = await self.client.post("message-flows", json=flow)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    async def send(
        self, flow: str, messages: Sequence[dict[str, Any]], **headers: str
    ) -> httpx.Response:
        path = f"message-flows/{flow}/messages"
        return await self.client.post(path, json={"messages": list(messages)}, headers=headers)

    async def tickets(self, flow: str, messages: Sequence[dict[str, Any]]) -> list[str]:
        answer = await self.send(flow, messages)
        assert answer.status_code == 202, answer.text
        tickets: list[str] = answer.json()["tickets"]
        return tickets

    async def state(self, flow: str, ticket: str) -> dict[str, Any]:
        answer = await self.client.get(f"message-flows/{flow}/messages/{ticket}")
        assert answer.status_code == 200, answer.text
        state: dict[str, Any] = answer.json()
        return state

    async def ended(self, flow: str, tickets: Sequence[str]) -> list[dict[str, Any]]:
        """Wait until messages have ended; return their states."""

        async def have_ended() -> bool:
            states = [await self.state(flow, ticket) for ticket in tickets]
            return all(state["state"] != "queued" for state in states)

        await eventually(have_ended)
        return [await self.state(flow, ticket) for ticket in tickets]

    async def report(self, flow: str) -> dict[str, Any]:
        answer = await self.client.get(f"message-flows/{flow}")
        assert answer.status_code == 200, answer.text
        report: dict[str, Any] = answer.json()
        return report

    async def events(
        self, flow: str, last: int, *more: tuple[bytes, bytes], started: asyncio.Event | None = None
    ) -> list[Any]:
        """Follow results by server-sent events until the one with a number arrives.

        Args:
            started: Set when the first bytes arrive.
        """
        path = f"/v1/{self.database}/message-flows/{flow}/results"
        async with asyncio.timeout(WITHIN_S):
            return await read_events(self.api, path, f"id: {last}-", *more, started=started)


def orders(customers: Sequence[str] = CUSTOMERS, prefix: str = "m") -> list[dict[str, Any]]:
    return [{"number": f"{prefix}{i}", "name": name} for i, name in enumerate(customers, 1)]


@asynccontextmanager
async def shop_on(
    configs: Sequence[SystemConfig], catalogue_url: str, redis_url: str, **options: Any
) -> AsyncIterator[Shop]:
    async with service(configs, catalogue_url, coordination_url=redis_url, **options) as instance:
        await instance.favour()
        database = await instance.put_schema(CLASSES)
        for name, amount in CREDITS.items():
            await instance.create(database, "credits", name, customer=name, amount=amount)
        api = DataApi(
            instance.mediator.data,
            DataOptions(cursor_key=b"key"),
            lambda _: None,
            DataServices(flows=instance.mediator.flows),
        )
        base = f"http://localhost/v1/{database}/"
        transport = httpx.ASGITransport(app=api)
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            yield Shop(instance, database, api, client)
