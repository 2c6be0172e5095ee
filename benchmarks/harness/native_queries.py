"""The eleven queries of `profiles` as an application would write them for each driver.

Each is the best form that the driver offers: a statement with the declared indexes, an
aggregation pipeline, index sets and pipelined reads. Answers are ids in order, as a check.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias

import asyncpg
import redis.asyncio
import sqlalchemy as sa
from pymongo import ASCENDING, AsyncMongoClient
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from benchmarks.harness.profiles import CLASSES, Profiles
from mediator.embedded.port import Kind

__all__ = ["HARDER", "LIMIT", "NATIVE", "Native"]

LIMIT: Final = 1_000
_YEARS: Final = (1970, 1972)
_LIKES: Final = 100
_LIKED, _WITH_ACCOUNT, _WITH_WALL = 8, 9, 10
"""The queries that are not about profiles alone."""

_PROFILES: Final = "SELECT * FROM profiles WHERE "
_ACCOUNTS: Final = (
    "SELECT p.*, to_jsonb(l) AS account FROM profiles p JOIN logins l ON l.id = p.login"
)
_WALLS: Final = 'SELECT c.*, to_jsonb(e) AS wall FROM comments c JOIN entries e ON e.id = c."on"'
_STATEMENTS: Final[tuple[tuple[str, tuple[Any, ...]], ...]] = (
    (f"{_PROFILES}id = $1", ("p17",)),
    (f'{_PROFILES}"profileID" = $1', (17,)),
    (f"{_PROFILES}firstname = $1 AND lastname = $2", ("Anna", "Klose")),
    (f'{_PROFILES}"yearOfBirth" = $1', (1978,)),
    (f"{_PROFILES}lastname = $1", ("Klose",)),
    (f'{_PROFILES}"yearOfBirth" BETWEEN $1 AND $2', _YEARS),
    (
        f"{_PROFILES}lastname = $1 AND firstname <> $2 AND firstname <> $3",
        ("Klose", "Miroslav", "Anna"),
    ),
    (f"{_PROFILES}lastname = $1 AND firstname IN ($2, $3)", ("Klose", "Miroslav", "Anna")),
    ('SELECT * FROM entries WHERE "likeCounter" >= $1 AND entry LIKE $2', (_LIKES, "%goal%")),
    (
        f"{_ACCOUNTS} WHERE l.mail LIKE $1 AND p.country IN ($2, $3)",
        ("%@mail.example", "DE", "AT"),
    ),
    (f"{_WALLS} WHERE c.comment LIKE $1 AND e.entry LIKE $2", ("%goal%", r"%100\%%")),
)

_Rows = Sequence[Mapping[str, Any]]


class _Postgres:
    _TABLES: Final = {
        "profiles": '"profileID" bigint, firstname text, lastname text, "yearOfBirth" bigint,'
        " country text, login text",
        "logins": "mail text, count bigint",
        "entries": 'entry text, "likeCounter" bigint, author text',
        "comments": 'comment text, "on" text, author text',
    }
    _INDEXES: Final = ('profiles ("profileID")', "profiles (lastname)", 'profiles ("yearOfBirth")')

    async def open(self, url: str) -> None:
        self._connection = await asyncpg.connect(url)
        await self._connection.execute(
            "CREATE SCHEMA IF NOT EXISTS native; SET search_path TO native"
        )

    async def load(self, data: Profiles) -> None:
        for name in CLASSES:
            columns = self._TABLES[name]
            collated = columns.replace(" text", ' text COLLATE "C"')
            await self._connection.execute(
                f'CREATE TABLE {name} (id text COLLATE "C" PRIMARY KEY, {collated})'
            )
            rows = data.items(name)
            names = list(rows[0])
            records = [tuple(row.get(n) for n in names) for row in rows]
            await self._connection.copy_records_to_table(name, records=records, columns=names)
        for index in (*self._INDEXES, 'entries ("likeCounter")'):
            await self._connection.execute(f"CREATE INDEX ON {index}")
        await self._connection.execute("ANALYZE")

    async def answer(self, number: int) -> _Rows:
        text, values = _STATEMENTS[number]
        return await self._fetch(text, *values)

    async def _fetch(self, text: str, *values: Any) -> _Rows:
        rows = await self._connection.fetch(f"{text} ORDER BY 1 LIMIT {LIMIT}", *values)
        return [dict(row) for row in rows]

    async def close(self) -> None:
        await self._connection.close()


class _Sqlalchemy(_Postgres):
    """The same statements through SQLAlchemy's engine and its pool, as an application has them."""

    async def open(self, url: str) -> None:
        await super().open(url)
        target = sa.make_url(url).set(drivername="postgresql+asyncpg")
        settings = {"server_settings": {"search_path": "native"}}
        self._engine: AsyncEngine = create_async_engine(target, connect_args=settings)

    async def _fetch(self, text: str, *values: Any) -> _Rows:
        numbered = {f"v{number}": value for number, value in enumerate(values, 1)}
        statement = _text(f"{text} ORDER BY 1 LIMIT {LIMIT}")
        async with self._engine.connect() as connection:
            result = await connection.execute(statement, numbered)
            return [dict(row) for row in result.mappings()]

    async def close(self) -> None:
        await self._engine.dispose()
        await super().close()


@lru_cache
def _text(text: str) -> sa.TextClause:
    return sa.text(re.sub(r"\$(\d)", r":v\1", text.replace("\\", "\\\\")))


class _Mongo:
    _FILTERS: Final[tuple[dict[str, Any], ...]] = (
        {"_id": "p17"},
        {"profileID": 17},
        {"firstname": "Anna", "lastname": "Klose"},
        {"yearOfBirth": 1978},
        {"lastname": "Klose"},
        {"yearOfBirth": {"$gte": _YEARS[0], "$lte": _YEARS[1]}},
        {"lastname": "Klose", "firstname": {"$nin": ["Miroslav", "Anna"]}},
        {"lastname": "Klose", "firstname": {"$in": ["Miroslav", "Anna"]}},
    )

    async def open(self, url: str) -> None:
        self._client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(url, w=1)
        self._database = self._client["native"]

    async def load(self, data: Profiles) -> None:
        for name in CLASSES:
            rows = data.items(name)
            documents = [{"_id": r["id"], **{k: r[k] for k in r if k != "id"}} for r in rows]
            for at in range(0, len(documents), LIMIT):
                await self._database[name].insert_many(documents[at : at + LIMIT])
        for name in ("profileID", "lastname", "yearOfBirth"):
            await self._database.profiles.create_index([(name, ASCENDING)])
        await self._database.entries.create_index([("likeCounter", ASCENDING)])

    async def answer(self, number: int) -> _Rows:
        if number < len(self._FILTERS):
            return await self._find("profiles", self._FILTERS[number])
        if number == _LIKED:
            likes = {"likeCounter": {"$gte": _LIKES}, "entry": {"$regex": "goal"}}
            return await self._find("entries", likes)
        if number == _WITH_ACCOUNT:
            people = await self._find("profiles", {"country": {"$in": ["DE", "AT"]}}, limit=0)
            accounts = {"mail": {"$regex": r"@mail\.example\z"}}
            return await self._join(people, "login", "logins", accounts, "account")
        comments = await self._find("comments", {"comment": {"$regex": "goal"}}, limit=0)
        return await self._join(comments, "on", "entries", {"entry": {"$regex": "100%"}}, "wall")

    async def _find(self, name: str, filter_: Mapping[str, Any], limit: int = LIMIT) -> _Rows:
        rows = await self._database[name].find(filter_).sort("_id").limit(limit).to_list()
        return [{"id": row.pop("_id"), **row} for row in rows]

    async def _join(
        self, outer: _Rows, key: str, name: str, filter_: Mapping[str, Any], alias: str
    ) -> _Rows:
        """Join in two round trips: the server and its stand-in share no form of $lookup."""
        ids = sorted({row[key] for row in outer})
        matches = await self._find(name, {"_id": {"$in": ids}, **filter_}, limit=0)
        inner = {row["id"]: row for row in matches}
        return [{**row, alias: inner[row[key]]} for row in outer if row[key] in inner][:LIMIT]

    async def close(self) -> None:
        await self._client.close()


class _Redis:
    """A hash for each object, a set of ids for each value that is queried by equality.

    Numbers have a sorted set. For conditions without an index a class is scanned.
    """

    _SCORES: Final[Mapping[int, tuple[Any, ...]]] = {
        1: ("n:profileID", 17, 17),
        3: ("n:yearOfBirth", 1978, 1978),
        5: ("n:yearOfBirth", *_YEARS),
        _LIKED: ("n:likeCounter", _LIKES, "+inf"),
    }

    async def open(self, url: str) -> None:
        self._client: Any = redis.asyncio.Redis.from_url(url, decode_responses=True)

    async def load(self, data: Profiles) -> None:
        for name in CLASSES:
            rows = data.items(name)
            for at in range(0, len(rows), LIMIT):
                pipeline = self._client.pipeline(transaction=False)
                for row in rows[at : at + LIMIT]:
                    self._add(pipeline, name, row)
                await pipeline.execute()

    def _add(self, pipeline: Any, name: str, row: Mapping[str, Any]) -> None:
        id_ = row["id"]
        pipeline.hset(f"n:{name}:{id_}", mapping=dict(row))
        pipeline.zadd(f"n:{name}", {id_: 0})
        if name == "profiles":
            pipeline.sadd(f"n:lastname:{row['lastname']}", id_)
            pipeline.zadd("n:profileID", {id_: row["profileID"]})
            pipeline.zadd("n:yearOfBirth", {id_: row["yearOfBirth"]})
        if name == "entries":
            pipeline.zadd("n:likeCounter", {id_: row["likeCounter"]})

    async def answer(self, number: int) -> _Rows:
        if number == _WITH_ACCOUNT:
            return await self._accounts()
        if number == _WITH_WALL:
            return await self._walls()
        name = "entries" if number == _LIKED else "profiles"
        rows = await self._read(name, sorted(await self._candidates(number)))
        return [row for row in rows if row and _holds(number, row)][:LIMIT]

    async def _candidates(self, number: int) -> Any:
        if number == 0:
            return ["p17"]
        if number in self._SCORES:
            return await self._client.zrangebyscore(*self._SCORES[number])
        return await self._client.smembers("n:lastname:Klose")

    async def _accounts(self) -> _Rows:
        people = [r for r in await self._read_all("profiles") if r["country"] in {"DE", "AT"}]
        accounts = await self._read("logins", [row["login"] for row in people])
        pairs = zip(people, accounts, strict=True)
        matches = [(p, a) for p, a in pairs if a["mail"].endswith("@mail.example")]
        return [{**person, "account": account} for person, account in matches][:LIMIT]

    async def _walls(self) -> _Rows:
        comments = [r for r in await self._read_all("comments") if "goal" in r["comment"]]
        ids = list(dict.fromkeys(row["on"] for row in comments))
        walls = dict(zip(ids, await self._read("entries", ids), strict=True))
        matches = [row for row in comments if "100%" in walls[row["on"]]["entry"]]
        return [{**row, "wall": walls[row["on"]]} for row in matches][:LIMIT]

    async def _read_all(self, name: str) -> _Rows:
        return await self._read(name, await self._client.zrange(f"n:{name}", 0, -1))

    async def _read(self, name: str, ids: Sequence[str]) -> list[Any]:
        rows: list[Any] = []
        for at in range(0, len(ids), LIMIT):
            pipeline = self._client.pipeline(transaction=False)
            for id_ in ids[at : at + LIMIT]:
                pipeline.hgetall(f"n:{name}:{id_}")
            rows += await pipeline.execute()
        return rows

    async def close(self) -> None:
        await self._client.aclose()


def _holds(number: int, row: Mapping[str, str]) -> bool:
    """Apply the conditions that the index did not."""
    match number:
        case 2:
            return row["firstname"] == "Anna"
        case 6:
            return row["firstname"] not in {"Miroslav", "Anna"}
        case 7:
            return row["firstname"] in {"Miroslav", "Anna"}
        case 8:
            return "goal" in row["entry"]
    return True


Native: TypeAlias = _Postgres | _Mongo | _Redis
"""A driver with its own copy of the data; `answer` executes one of the queries."""

NATIVE: Final[Mapping[Kind, type[Native]]] = {
    "redis": _Redis,
    "postgresql": _Sqlalchemy,
    "mongodb": _Mongo,
}

HARDER: Final[Mapping[Kind, type[Native]]] = {"postgresql": _Postgres}
"""Drivers below these, on one separate connection, without a bar."""
