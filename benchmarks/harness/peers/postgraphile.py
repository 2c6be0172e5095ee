"""PostGraphile: GraphQL over PostgreSQL, with the options that its documentation advises.

Its atomic update is a function of the database, which it exposes as a mutation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import orjson

from app.commands.demo.http1 import render
from benchmarks.harness.delay import LOOPBACK
from benchmarks.harness.peers.on_postgresql import PRODUCTION, articles_database, package_version
from benchmarks.harness.peers.operations import (
    OBJECTS,
    PAGE,
    SHELVES,
    Requests,
    object_id,
    some_object,
)
from benchmarks.harness.peers.peer import ENVIRONMENTS, Peer, Running, free_port, installed, serving
from benchmarks.harness.proxy_process import scratch

__all__ = ["POSTGRAPHILE"]

_ERROR: Final = b'"errors":['
_JSON: Final = {"Content-Type": "application/json"}
_FIELDS: Final = "id title author summary shelf hits"

_GET: Final = f"query ($id: String!) {{ articleById(id: $id) {{ {_FIELDS} }} }}"
_PUT: Final = (
    "mutation ($id: String!, $values: ArticlePatch!)"
    " { updateArticleById(input: {id: $id, articlePatch: $values}) { article { id } } }"
)
_HIT: Final = "mutation ($id: String!) { countHit(input: {article: $id, by: 1}) { integer } }"
_LIST: Final = (
    "query ($shelf: Int!, $first: Int!)"
    f" {{ allArticles(condition: {{shelf: $shelf}}, first: $first) {{ nodes {{ {_FIELDS} }} }} }}"
)
_FUNCTION: Final = (
    "CREATE FUNCTION count_hit(article text, by integer) RETURNS integer LANGUAGE sql"
    " AS 'UPDATE articles SET hits = hits + by WHERE id = article RETURNING hits'"
)


def _execute(query: str, variables: Mapping[str, Any]) -> bytes:
    body = orjson.dumps({"query": query, "variables": variables})
    return render("POST", "/graphql", body, _JSON)


_IDS: Final = [object_id(number) for number in range(OBJECTS)]

_REQUESTS: Final[Requests] = {
    "PUT": [_execute(_PUT, {"id": id_, "values": some_object(n)}) for n, id_ in enumerate(_IDS)],
    "GET": [_execute(_GET, {"id": id_}) for id_ in _IDS],
    "atomic update": [_execute(_HIT, {"id": id_}) for id_ in _IDS],
    "filtered page": [_execute(_LIST, {"shelf": n, "first": PAGE}) for n in range(SHELVES)],
}


@asynccontextmanager
async def _serve(url: str) -> AsyncIterator[Running]:
    cli = str(installed(ENVIRONMENTS / "postgraphile/node_modules/.bin/postgraphile"))
    version, port = await package_version("postgraphile", "postgraphile"), free_port()
    database = await articles_database(url, "peer_postgraphile", _FUNCTION)
    command = [
        cli, "--connection", database, "--schema", "public", "--max-pool-size", "16",
        "--host", LOOPBACK, "--port", str(port), "--disable-query-log", "--disable-graphiql",
        "--no-setof-functions-contain-nulls", "--no-ignore-rbac", "--dynamic-json",
    ]  # fmt: skip
    env = {**PRODUCTION, "GRAPHILE_TURBO": "1"}
    with scratch("postgraphile") as directory:
        async with serving(command, port, directory / "log", env) as address:
            yield Running(address, version)


POSTGRAPHILE: Final = Peer("PostGraphile", "postgresql", _REQUESTS, _serve, _ERROR)
