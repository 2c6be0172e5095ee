"""Clients that move coins between accounts on three systems, in transactions, and add them up."""

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

OPENING = 100
NUMBER = 24

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
    for n in range(NUMBER // len(BANKS))
]
"""One account of each bank: coins move within a family, so an audit need not read them all."""
ACCOUNTS = [account for family in FAMILIES for account in family]


@dataclass
class Ledger:
    """Transfers that were acknowledged and refused, and audits that were not aborted."""

    transfers: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    audits: int = 0

    def __str__(self) -> str:
        return f"{len(self.transfers)} transfers, {self.audits} audits"

    async def begin(self, client: RequestClient) -> None:
        """Open the accounts."""
        for account in ACCOUNTS:
            opened = await client.request("PUT", account, {"balance": OPENING})
            assert opened is not None
            assert opened.status == 201, opened

    async def check(self, client: RequestClient) -> None:
        """Compare all balances with the recorded transfers."""
        listing = await client.request("GET", "transfers/export")
        assert listing is not None
        transfers = {each["id"]: each for each in listing.lines()}
        assert self.transfers <= transfers.keys(), "an acknowledged transfer is lost"
        assert not self.refused & transfers.keys(), "a refused transfer is there"
        expected = Counter(dict.fromkeys(ACCOUNTS, OPENING))
        for transfer in transfers.values():
            expected[transfer["from"]] -= 1
            expected[transfer["to"]] += 1
        for account in ACCOUNTS:
            found = await client.request("GET", account)
            assert found is not None
            assert found.json()["balance"] == expected[account], account


@dataclass
class _Clerk(ABC):
    load: Load
    ledger: Ledger
    rng: random.Random
    number: int

    async def run(self) -> None:
        """Work with one family after the other, until the load is done."""
        with closing(RequestClient(self.load, self.number)) as client:
            while not self.load.is_done:
                await self._work(client, self.rng.choice(FAMILIES))

    @abstractmethod
    async def _work(self, client: RequestClient, family: list[str]) -> None: ...


class Teller(_Clerk):
    """Moves coins."""

    async def _work(self, client: RequestClient, family: list[str]) -> None:
        one, other = self.rng.sample(family, 2)
        name = f"t{next(self.load.numbers)}"
        found = await _read_all(client, [one, other])
        if not found:
            return
        body = {
            "reads": [_seen(*each) for each in found.items()],
            "operations": [
                _patch(one, found[one].json()["balance"] - 1),
                _patch(other, found[other].json()["balance"] + 1),
                {"op": "put", "class": "transfers", "id": name, "body": {"from": one, "to": other}},
            ],
        }
        answer = await client.request("POST", "transactions", body)
        if answer is None or answer.status == 503:
            self.load.count("unknown")
        elif answer.status == 200:
            self.load.count("acknowledged")
            self.ledger.transfers.add(name)
        else:
            assert answer.status == 409, answer
            self.load.count("refused")
            self.ledger.refused.add(name)


class Auditor(_Clerk):
    """Adds up families: if the reads stand together, no coin is missing."""

    async def _work(self, client: RequestClient, family: list[str]) -> None:
        found = await _read_all(client, family)
        body = {"reads": [_seen(*each) for each in found.items()]}
        answer = await client.request("POST", "transactions", body) if found else None
        if answer is not None and answer.status == 200:
            self.ledger.audits += 1
            balances = [each.json()["balance"] for each in found.values()]
            assert sum(balances) == len(family) * OPENING, (family, balances)


async def _read_all(client: RequestClient, accounts: list[str]) -> dict[str, Answer]:
    """Read accounts; nothing unless all of them answer."""
    answers = [await client.request("GET", account) for account in accounts]
    found = [answer for answer in answers if answer is not None and answer.status == 200]
    return dict(zip(accounts, found, strict=True)) if len(found) == len(accounts) else {}


def _seen(path: str, answer: Answer) -> dict[str, Any]:
    class_name, id_ = path.split("/")
    return {"class": class_name, "id": id_, "etag": answer.headers["etag"]}


def _patch(path: str, balance: float) -> dict[str, Any]:
    class_name, id_ = path.split("/")
    return {"op": "patch", "class": class_name, "id": id_, "body": {"balance": balance}}
