"""An application without Portolan: Starlette handlers that call the driver directly.

One URL for each driver, ``/{driver}/{id}``, with GET, PUT and PATCH (which counts a hit).
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, TypeAlias

import asyncpg
import redis.asyncio
import sqlalchemy as sa
import uvicorn
from pymongo import AsyncMongoClient, ReturnDocument
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from mediator.embedded.port import Kind

__all__ = ["KIND_OF", "serve"]

_Object = dict[str, Any]
_POOL: Final = 16
_ARTICLES: Final = sa.Table(
    "bare_articles",
    sa.MetaData(),
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("title", sa.Text, nullable=False),
    sa.Column("author", sa.Text),
    sa.Column("hits", sa.BigInteger, nullable=False),
)
_PUT: Final = insert(_ARTICLES).values(
    {column.name: sa.bindparam(column.name) for column in _ARTICLES.columns}
)
_UPSERT: Final = _PUT.on_conflict_do_update(
    index_elements=["id"],
    set_={name: _PUT.excluded[name] for name in ("title", "author", "hits")},
)
_SELECT: Final = sa.select(_ARTICLES).where(_ARTICLES.c.id == sa.bindparam("key"))
_HIT: Final = (
    sa.update(_ARTICLES)
    .where(_ARTICLES.c.id == sa.bindparam("key"))
    .values(hits=_ARTICLES.c.hits + sa.bindparam("by"))
    .returning(_ARTICLES.c.hits)
)


class _Redis:
    def __init__(self, url: str) -> None:
        self._client = redis.asyncio.Redis.from_url(url, decode_responses=True)

    async def open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._client.aclose)

    async def get(self, id_: str) -> _Object | None:
        fields: Mapping[Any, Any] = await self._client.hgetall(f"bare:{id_}")
        return {**fields, "hits": int(fields["hits"])} if fields else None

    async def put(self, id_: str, values: Mapping[Any, Any]) -> None:
        await self._client.hset(f"bare:{id_}", mapping=values)

    async def hit(self, id_: str, by: int) -> int:
        return int(await self._client.hincrby(f"bare:{id_}", "hits", by))


class _Postgres:
    def __init__(self, url: str) -> None:
        target = sa.make_url(url).set(drivername="postgresql+asyncpg")
        self._engine: AsyncEngine = create_async_engine(target, pool_size=_POOL, max_overflow=0)

    async def open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._engine.dispose)
        async with self._engine.begin() as connection:
            await connection.run_sync(_ARTICLES.metadata.create_all)

    async def get(self, id_: str) -> _Object | None:
        async with self._engine.connect() as connection:
            row = (await connection.execute(_SELECT, {"key": id_})).mappings().first()
        return None if row is None else dict(row)

    async def put(self, id_: str, values: _Object) -> None:
        async with self._engine.begin() as connection:
            await connection.execute(_UPSERT, {"id": id_, **values})

    async def hit(self, id_: str, by: int) -> int:
        async with self._engine.begin() as connection:
            return int((await connection.execute(_HIT, {"key": id_, "by": by})).scalar_one())


class _Asyncpg:
    def __init__(self, url: str) -> None:
        self._url = url

    async def open(self, stack: AsyncExitStack) -> None:
        pool = asyncpg.create_pool(self._url, min_size=_POOL, max_size=_POOL)
        self._pool = await stack.enter_async_context(pool)

    async def get(self, id_: str) -> _Object | None:
        row = await self._pool.fetchrow("SELECT * FROM bare_articles WHERE id = $1", id_)
        return None if row is None else dict(row)

    async def put(self, id_: str, values: _Object) -> None:
        await self._pool.execute(
            "INSERT INTO bare_articles (id, title, author, hits) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT (id) DO UPDATE SET"
            " title = excluded.title, author = excluded.author, hits = excluded.hits",
            id_,
            values["title"],
            values["author"],
            values["hits"],
        )

    async def hit(self, id_: str, by: int) -> int:
        statement = "UPDATE bare_articles SET hits = hits + $2 WHERE id = $1 RETURNING hits"
        return int(await self._pool.fetchval(statement, id_, by))


class _Mongo:
    def __init__(self, url: str) -> None:
        self._client: AsyncMongoClient[_Object] = AsyncMongoClient(url, w=1)

    async def open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self._client.close)
        self._articles = self._client["bare"]["articles"]

    async def get(self, id_: str) -> _Object | None:
        return await self._articles.find_one({"_id": id_})

    async def put(self, id_: str, values: _Object) -> None:
        await self._articles.replace_one({"_id": id_}, values, upsert=True)

    async def hit(self, id_: str, by: int) -> int:
        article: Any = await self._articles.find_one_and_update(
            {"_id": id_},
            {"$inc": {"hits": by}},
            projection={"_id": False, "hits": True},
            return_document=ReturnDocument.AFTER,
        )
        return int(article["hits"])


_Store: TypeAlias = _Redis | _Postgres | _Asyncpg | _Mongo

_DRIVERS: Final[Mapping[str, tuple[Kind, type[_Store]]]] = {
    "redis": ("redis", _Redis),
    "postgresql": ("postgresql", _Postgres),
    "asyncpg": ("postgresql", _Asyncpg),
    "mongodb": ("mongodb", _Mongo),
}

KIND_OF: Final[Mapping[str, Kind]] = {driver: kind for driver, (kind, _) in _DRIVERS.items()}
"""The kind of server of each driver."""


def _handlers(store: _Store) -> dict[str, Callable[[Request], Awaitable[Response]]]:
    async def get(request: Request) -> Response:
        article = await store.get(request.path_params["id"])
        return Response(status_code=404) if article is None else JSONResponse(article)

    async def put(request: Request) -> Response:
        values = await request.json()
        await store.put(request.path_params["id"], values)
        return JSONResponse(values)

    async def patch(request: Request) -> Response:
        by = (await request.json())["hits"]["inc"]
        return JSONResponse({"hits": await store.hit(request.path_params["id"], by)})

    return {"GET": get, "PUT": put, "PATCH": patch}


async def serve(listener: socket.socket, urls: Mapping[Kind, str]) -> None:
    async with AsyncExitStack() as stack:
        routes = []
        for driver, (kind, make) in _DRIVERS.items():
            if kind in urls:
                store = make(urls[kind])
                await store.open(stack)
                routes += [
                    Route(f"/{driver}/{{id}}", handler, methods=[method])
                    for method, handler in _handlers(store).items()
                ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            http="httptools",
            ws="none",
        )
        await uvicorn.Server(config).serve([listener])
