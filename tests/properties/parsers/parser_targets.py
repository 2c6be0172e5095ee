"""Every parser of untrusted input, as a function of bytes, with the errors that it can raise.

Any other error is a defect that any client could provoke.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import orjson
from cryptography.hazmat.primitives.asymmetric import ec
from jwt import PyJWK
from jwt.algorithms import ECAlgorithm

from app.api.cursors import Cursors, parse_position
from app.api.transfer import split_lines
from app.http.idempotency import parse_key
from app.http.jsonbody import parse_json
from app.http.negotiation import accepts_by_name, accepts_gzip, check_accept, media_type
from app.http.paths import decode_segment, parse_pairs
from app.http.preconditions import parse_tag, parse_tags
from app.http.prefer import parse_prefer
from app.http.problems import HttpError
from app.security.authentication import Authenticator
from app.security.tokens import KeySet, TokenRules, Tokens
from mediator.access.cache import AccessCache, AccessSnapshot
from mediator.access.model import parse_grant
from mediator.base.clock import SystemClock
from mediator.base.errors import MediatorError, SchemaInvalid, Unauthenticated
from mediator.changes.position import FeedPosition
from mediator.operations.patch import parse_json_patch, parse_merge_patch, parse_update
from mediator.query.parameters import parse_parameters
from mediator.query.parser import parse_query_document
from mediator.query.paths import decode_position
from mediator.schema.parse import parse_schema
from mediator.schema.values import Codec
from mediator.standing.parser import parse_tuple, parse_workload
from mediator.views.parser import parse_view
from sketch.protocol.wire import WireError, decode
from spark_jobs.runner.job import parse_job
from spark_jobs.runner.specification import SpecInvalid

__all__ = ["SEEDS", "TARGETS", "TOKENS", "Target"]

SCHEMA: Final = parse_schema(
    "news",
    {
        "classes": {
            "people": {"fields": {"name": {"type": "string"}}},
            "articles": {
                "fields": {
                    "title": {"type": "string", "index": True, "max_length": 20},
                    "hits": {"type": "integer", "index": True},
                    "price": {"type": "decimal"},
                    "seen": {"type": "timestamp"},
                    "raw": {"type": "binary"},
                    "ratio": {"type": "float"},
                    "body": {"type": "document"},
                    "tags": {"type": "set", "items": "string"},
                    "parts": {"type": "list", "items": "document"},
                    "more": {"type": "map", "items": "decimal"},
                    "author": {"type": "reference", "to": "people"},
                }
            },
        }
    },
)
ARTICLES: Final = SCHEMA.classes["articles"]
CODEC: Final = Codec(ARTICLES)
CURRENT: Final = {"title": "t", "hits": 1, "body": {"a": [1, {"b": None}]}, "tags": ["x"]}
BOUND: Final = ("news", "articles", None)
CURSORS: Final = Cursors(b"k")


class _NoTenants:
    """A catalogue without tenants."""

    async def version(self) -> int:
        return -1

    async def snapshot(self) -> AccessSnapshot:
        return AccessSnapshot()


def _authenticator() -> Authenticator:
    clock = SystemClock()
    public = ECAlgorithm.to_jwk(ec.generate_private_key(ec.SECP256R1()).public_key(), as_dict=True)
    keys = KeySet("/nowhere", clock)
    keys.keys = {"k": PyJWK({**public, "kid": "k", "alg": "ES256"})}
    keys.fetched_s = clock.monotonic() + 1e9  # no keys are fetched here
    tokens = Tokens(keys, TokenRules("https://issuer.example", "portolan", 30.0), clock)
    return Authenticator(AccessCache(_NoTenants(), clock), tokens, clock)


AUTHENTICATOR: Final = _authenticator()


@dataclass(frozen=True)
class Target:
    """A parser, and the errors that it can raise."""

    run: Callable[[bytes], object]
    raises: tuple[type[Exception], ...] = (MediatorError, HttpError)

    def __call__(self, raw: bytes) -> None:
        with suppress(*self.raises):
            self.run(raw)


def _text(raw: bytes) -> str:
    """Decode a header field as the service does."""
    return raw.decode("latin-1")


def _query(raw: bytes) -> object:
    return parse_query_document(parse_json(raw), SCHEMA, "articles", max_limit=100)


def _parameters(raw: bytes) -> object:
    return parse_parameters(parse_pairs(raw), SCHEMA, "articles", max_limit=100)


def _json_patch(raw: bytes) -> object:
    return CODEC.decode_fields(parse_json_patch(parse_json(raw))(dict(CURRENT)))


def _merge_patch(raw: bytes) -> object:
    changes = parse_merge_patch(ARTICLES, CODEC, parse_json(raw))
    return changes(dict(CURRENT)) if callable(changes) else changes


def _cursor(raw: bytes) -> object:
    return CURSORS.open(BOUND, "news_1", _text(raw))


def _signed_cursor(raw: bytes) -> object:
    """Parse a sealed position: the types of its values can have changed since."""
    try:
        title, hits = orjson.loads(raw)
    except (orjson.JSONDecodeError, TypeError, ValueError):
        return None
    levels = parse_query_document({"order": ["title", "hits"]}, SCHEMA, "articles").levels
    cursor = CURSORS.seal(BOUND, "news_1", ["id", [title], [hits]])
    return decode_position(levels, CURSORS.open(BOUND, "news_1", cursor))


def _position(raw: bytes) -> object:
    """Parse a position in its transport encoding, so that the decoded text is fuzzed."""
    return parse_position(base64.urlsafe_b64encode(raw).rstrip(b"=").decode(), "news")


def _lines(raw: bytes) -> object:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(raw), 7):
            yield raw[start : start + 7]

    async def read_lines() -> list[Any]:
        return [line.text async for line in split_lines(chunks(), 64)]

    for text in _run(read_lines()):
        if text is not None:
            CODEC.decode_object(_object(parse_json(text)))
    return None


def _object(body: Any) -> dict[str, Any]:
    return body if isinstance(body, dict) else {}


def _run(coroutine: Any) -> Any:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the coroutine suspended")


def _authorization(raw: bytes) -> object:
    return asyncio.run(AUTHENTICATOR.principal(_text(raw), basic=True))


def _negotiation(raw: bytes) -> None:
    text = _text(raw)
    accepts_by_name(text, "text/csv")
    accepts_gzip(text)
    media_type(text)
    parse_tag(text)
    check_accept(text, "application/json")


def _standing_queries(raw: bytes) -> object:
    return parse_workload(parse_json(raw))


def _stream_tuple(raw: bytes) -> object:
    return parse_tuple(parse_json(raw), parse_workload(parse_json(_STANDING)).streams)


_STANDING: Final = (
    b'{"streams":{"R":{"attributes":["a"],"rate":1},"S":{"attributes":["a"],"rate":2.5}},"queries":'
    b'{"q":{"relations":["R","S"],"predicates":[["R.a","S.a"]],"window_s":1}},"parallelism":2,'
    b'"sizes":[{"predicates":[["R.a","S.a"]],"window_s":1,"size":0}],'
    b'"selectivities":[{"predicate":["R.a","S.a"],"selectivity":0.5}]}'
)


TARGETS: Final[Mapping[str, Target]] = {
    "query": Target(_query),
    "view": Target(lambda raw: parse_view(parse_json(raw), SCHEMA)),
    "parameters": Target(_parameters),
    "update": Target(lambda raw: parse_update(ARTICLES, CODEC, parse_json(raw))),
    "merge patch": Target(_merge_patch),
    "json patch": Target(_json_patch),
    "object": Target(lambda raw: CODEC.decode_object(_object(parse_json(raw)))),
    "import": Target(_lines),
    "cursor": Target(_cursor),
    "position of a cursor": Target(_signed_cursor),
    "position of a write": Target(_position),
    "position of the feed": Target(lambda raw: FeedPosition.parse(_text(raw), "after")),
    "segment": Target(lambda raw: decode_segment(raw, "id")),
    "tags": Target(lambda raw: parse_tags(_text(raw), "If-Match")),
    "prefer": Target(lambda raw: parse_prefer(_text(raw))),
    "accept": Target(_negotiation),
    "idempotency key": Target(lambda raw: parse_key(_text(raw))),
    "authorization": Target(_authorization, (Unauthenticated,)),
    "grant": Target(lambda raw: parse_grant(_text(raw)), ()),
    "sketch": Target(decode, (WireError,)),
    "schema": Target(lambda raw: parse_schema("news", parse_json(raw)), (SchemaInvalid, HttpError)),
    "job": Target(lambda raw: parse_job(parse_json(raw), "news"), (SpecInvalid, HttpError)),
    "standing queries": Target(_standing_queries),
    "tuple of a stream": Target(_stream_tuple),
}

_TOKEN: Final = ".".join(
    base64.urlsafe_b64encode(segment).rstrip(b"=").decode()
    for segment in (b'{"alg":"ES256","kid":"k"}', b'{"sub":"ada","exp":1e99}', b"0" * 64)
).encode()
_ARTICLE: Final = (
    b'{"title":"t","hits":1,"price":"1.5","seen":"2024-01-02T03:04:05Z","raw":"AAAA","ratio":1e3,'
    b'"body":{"a":[{}]},"tags":["x"],"parts":[{"p":1}],"more":{"m":"2"},"author":"a"}'
)
_QUERY: Final = (
    b'{"filter":{"and":[{"eq":["title","x"]},{"in":["hits",[1,2]]},{"not":{"exists":"body.a"}},'
    b'{"like":["title","a%"]}]},"order":[["hits","desc"],"id"],"limit":5,"fields":["title"],'
    b'"join":{"as":"who","reference":"author"},"count":"exact","allow_scan":true}'
)
_VIEW: Final = (
    b'{"class":"articles","join":[{"as":"who","reference":"author"},{"class":"people","anti":true,'
    b'"on":{"name":"who.name"}}],"filter":{"exists":"hits"},"fields":["id","who.name"]}'
)
SEEDS: Final[Mapping[str, Sequence[bytes]]] = {
    "query": (
        _QUERY,
        b'{"aggregate":{"group":["title"],"compute":{"n":{"count":"*"}},"filter":{"gt":["n",1]}}}',
    ),
    "view": (_VIEW,),
    "parameters": (
        b"title=x&hits.ge=1&order=-hits,title&limit=5&fields=title,hits&count=exact&explain=true",
    ),
    "update": (
        b'{"hits":{"inc":1},"tags":{"add_to_set":"x"},"body":{"set":{}},"more":{"put":{}}}',
    ),
    "merge patch": (b'{"title":null,"body":{"a":{"b":null}},"more":{"m":"1"}}',),
    "json patch": (
        b'[{"op":"add","path":"/body/a/-","value":1},{"op":"move","from":"/title","path":"/body"}]',
        b'[{"op":"copy","from":"/body","path":"/body/a/0"},{"op":"test","path":"","value":{}}]',
    ),
    "object": (_ARTICLE,),
    "import": (_ARTICLE[:40] + b"\n" + b'{"title":"t"}\r\n\n{"hits":1}\n',),
    "cursor": (CURSORS.seal(BOUND, "news_1", ["a"]).encode(),),
    "position of a cursor": (b'["t",1]', b'[1,"t"]', b"[null,null]"),
    "position of a write": (b"news/articles/a#b#main:7,hits:4611686018427387904",),
    "position of the feed": (b"0-0.1-2.3-4.5-6",),
    "segment": (b"a%2Fb%C3%A9",),
    "tags": (b'W/"a", "1-main.5", *',),
    "prefer": (b'return=minimal, handling=strict; wait=5, max-staleness=1.5, at-least="x"',),
    "accept": (b'application/json;q=0.5, text/*; a="b\\"", */*;q=0', b"gzip;q=1.0, *;q=0"),
    "idempotency key": (b'"a\\"b"', b"plain"),
    "authorization": (b"Bearer " + _TOKEN, b"Basic OmtleQ==", b"Bearer ptl_0123456789abcdef_x"),
    "grant": (b"read:news/articles",),
    "sketch": (b"PSK1" + bytes(60),),
    "schema": (
        b'{"classes":{"a":{"owner_field":"x","ttl_s":5,"fields":{"x":{"type":"list","default":[]}}}}}',
        b'{"mode":"mixed","annotations":[{"metric":"read_latency","goal":1},{"require":"joins"}]}',
    ),
    "job": (b'{"kind":"example.count","spec":{"records":{"class":"a","filter":{}},"field":"x"}}',),
    "standing queries": (_STANDING,),
    "tuple of a stream": (b'{"stream":"R","time_s":1.5,"values":{"a":null}}',),
}
"""Valid or nearly valid initial inputs."""

TOKENS: Final = tuple(
    b'{ } [ ] , : " \\ null true 1e999 -0 9223372036854775808 \xff \xed\xa0\x80 \\ud800 \0 /'
    b" ~1 % %00 %ff = & ; . - _ * W/ A== id eq and not class fields".split(b" ")
)
"""Tokens of the parsers' grammars."""
