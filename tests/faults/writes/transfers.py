"""Clients that transfer coins between accounts on three systems in transactions, and audit them."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from tests.faults.caching.http_client import Answer
from tests.faults.writes.clients import Load, RequestClient
from tests.faults.writes.writes import BATCHED
from tests.process.service import field_on

__all__ = ["ACCOUNTS", "BANKS", "Auditor", "Ledger", "Teller"]

OPENING_BALANCE = 100
ACCOUNT_COUNT = 24

# The MongoDB stand-in has no exact integers.
_BANKS: dict[str, dict[str, Any]] = {
    "savings": {"balance": field_on("postgres", "integer", default=0)},
    "wallets": {"balance": field_on("redis", "integer", default=0)},
    "loans": {"balance": field_on("mongo", "float", default=0)},
}
BANKS = {prefix + name: fields for prefix in ("", BATCHED) for name, fields in _BANKS.items()}
FAMILIES = [
    [f"{prefix}{bank}/a{n}" for bank in _BANKS]
    for prefix in ("", BATCHED)
    for n in range(ACCOUNT_COUNT // len(BANKS))
]
"""Groups of one account per bank: transfers stay within a group, so an audit reads one group."""
ACCOUNTS = [account for family in FAMILIES for account in family]


@dataclass
class Ledger:
    """Acknowledged and refused transfers, and the number of committed audits."""

    transfers: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    audits: int = 0

    def __str__(self) -> str:
        return f"{len(self.transfers)} transfers, {self.audits} audits"

    async def open_accounts(self, client: RequestClient) -> None:
        """Open the accounts."""
        for account in ACCOUNTS:
            response = await client.request("PUT", account, {"balance": OPENING_BALANCE})
            assert response is not None
            assert response.status == 201, response

    async def check(self, client: RequestClient) -> None:
        """Compare all balances with the recorded transfers."""
        export = await client.request("GET", "transfers/export")
        assert export is not None
        transfers = {transfer["id"]: transfer for transfer in export.lines()}
        assert self.transfers <= transfers.keys(), "an acknowledged transfer is lost"
        assert not self.refused & transfers.keys(), "a refused transfer exists"
        expected = Counter(dict.fromkeys(ACCOUNTS, OPENING_BALANCE))
        for transfer in transfers.values():
            expected[transfer["from"]] -= 1
            expected[transfer["to"]] += 1
        for account in ACCOUNTS:
            response = await client.request("GET", account)
            assert response is not None
            assert response.json()["balance"] == expected[account], account


@dataclass
class _Clerk(ABC):
    load: Load
    ledger: Ledger
    rng: random.Random
    number: int

    async def run(self) -> None:
        """Process one family after the other until the load is done."""
        with closing(RequestClient(self.load, self.number)) as client:
            while not self.load.is_done:
                await self._work(client, self.rng.choice(FAMILIES))

    @abstractmethod
    async def _work(self, client: RequestClient, family: list[str]) -> None: ...


class Teller(_Clerk):
    """Transfers coins."""

    async def _work(self, client: RequestClient, family: list[str]) -> None:
        source, target = self.rng.sample(family, 2)
        name = f"t{next(self.load.numbers)}"
        responses = await _read_all(client, [source, target])
        if not responses:
            return
        body = {
            "reads": [_read_entry(*item) for item in responses.items()],
            "operations": [
                _patch(source, responses[source].json()["balance"] - 1),
                _patch(target, responses[target].json()["balance"] + 1),
                {
                    "op": "put",
                    "class": "transfers",
                    "id": name,
                    "body": {"from": source, "to": target},
                },
            ],
        }
        response = await client.request("POST", "transactions", body)
        if response is None or response.status == 503:
            self.load.count("unknown")
        elif response.status == 200:
            self.load.count("acknowledged")
            self.ledger.transfers.add(name)
        else:
            assert response.status == 409, response
            self.load.count("refused")
            self.ledger.refused.add(name)


class Auditor(_Clerk):
    """Adds up families: if the reads commit, no coin is missing."""

    async def _work(self, client: RequestClient, family: list[str]) -> None:
        responses = await _read_all(client, family)
        body = {"reads": [_read_entry(*item) for item in responses.items()]}
        response = await client.request("POST", "transactions", body) if responses else None
        if response is not None and response.status == 200:
            self.ledger.audits += 1
            balances = [response.json()["balance"] for response in responses.values()]
            assert sum(balances) == len(family) * OPENING_BALANCE, (family, balances)


async def _read_all(client: RequestClient, accounts: list[str]) -> dict[str, Answer]:
    """Read accounts; empty unless all responses succeed."""
    responses = [await client.request("GET", account) for account in accounts]
    complete = [
        response for response in responses if response is not None and response.status == 200
    ]
    return dict(zip(accounts, complete, strict=True)) if len(complete) == len(accounts) else {}


def _read_entry(path: str, response: Answer) -> dict[str, Any]:
    class_name, id_ = path.split("/")
    return {"class": class_name, "id": id_, "etag": response.headers["etag"]}


def _patch(path: str, balance: float) -> dict[str, Any]:
    class_name, id_ = path.split("/")
    return {"op": "patch", "class": class_name, "id": id_, "body": {"balance": balance}}
