"""Shared by peers on PostgreSQL: a database with the articles in a table, and Node."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import asyncpg
import orjson

from benchmarks.harness.peers.operations import OBJECTS, object_id, some_object
from benchmarks.harness.peers.peer import ENVIRONMENTS, installed
from benchmarks.harness.proxy_process import program

__all__ = ["PRODUCTION", "articles_database", "package_version"]

PRODUCTION: Final = {"NODE_ENV": "production"}

_COLUMNS: Final = ("id", "title", "author", "summary", "shelf", "hits")
_TABLE: Final = (
    "CREATE TABLE articles (id text PRIMARY KEY, title text NOT NULL, author text NOT NULL,"
    " summary text NOT NULL, shelf integer NOT NULL, hits integer NOT NULL)"
)


async def articles_database(url: str, name: str, *statements: str) -> str:
    """Create a new database on a server, with the articles; it ends with the server.

    Args:
        statements: Further statements, after the table's.

    Returns:
        Its URL, with an encoded path of the socket, as every driver of Node reads it.
    """
    server = await asyncpg.connect(url)
    try:
        await server.execute(f"DROP DATABASE IF EXISTS {name}")
        await server.execute(f"CREATE DATABASE {name}")
    finally:
        await server.close()
    database = _url(url, name)
    await _fill(database, statements)
    return database


async def _fill(url: str, statements: tuple[str, ...]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in (_TABLE, "CREATE INDEX ON articles (shelf)", *statements):
            await connection.execute(statement)
        articles = ({"id": object_id(n), **some_object(n)} for n in range(OBJECTS))
        rows = [tuple(article[column] for column in _COLUMNS) for article in articles]
        await connection.copy_records_to_table("articles", records=rows)
        await connection.execute("VACUUM ANALYZE articles")
    finally:
        await connection.close()


def _url(url: str, database: str) -> str:
    at = urlsplit(url)
    (directory,) = parse_qs(at.query)["host"]
    return f"postgresql://{at.netloc}/{database}?host={quote(directory, safe='')}"


async def package_version(folder: str, package: str) -> str:
    """Return the installed version of a package of Node, and that of Node.

    Raises:
        Failed: Either is not installed.
    """
    manifest = installed(ENVIRONMENTS / f"{folder}/node_modules/{package}/package.json")
    version = orjson.loads(manifest.read_bytes())["version"]
    node = await asyncio.create_subprocess_exec(
        program("node"), "--version", stdout=asyncio.subprocess.PIPE
    )
    output, _ = await node.communicate()
    return f"{version}, Node {output.decode().strip().removeprefix('v')}"
