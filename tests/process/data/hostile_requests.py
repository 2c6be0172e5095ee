"""Hostile requests to the data API, with the expected refusals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

TEN_MB = 10 * 2**20
UPDATE = "application/vnd.portolan.update+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
JSON = "application/json"
NDJSON = "application/x-ndjson"


@dataclass(frozen=True)
class Hostile:
    """A request that must be refused, and how.

    Attributes:
        method: Its method.
        target: Its raw target below the database.
        body: Its raw body.
        media_type: The declared media type of the body.
        headers: Further fields.
        status: The answer's status.
        pointer: A location that the answer names.
    """

    method: str
    target: str
    body: bytes | None = None
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    status: int = 400
    pointer: str | None = None


def put(body: bytes, pointer: str | None = None, **members: Any) -> Hostile:
    return Hostile("PUT", "articles/new", body, pointer=pointer, **members)


def patch(body: bytes, pointer: str | None = None, **members: Any) -> Hostile:
    """Patch the existing object."""
    return Hostile("PATCH", "articles/there", body, pointer=pointer, **members)


def get(target: str, pointer: str | None = None, **members: Any) -> Hostile:
    return Hostile("GET", target, pointer=pointer, **members)


def at(id_: str, status: int = 400, pointer: str | None = "id") -> Hostile:
    return Hostile("PUT", f"articles/{id_}", b'{"title":"x"}', status=status, pointer=pointer)


HOSTILE: dict[str, Hostile] = {
    # malformed JSON
    "empty": put(b"", ""),
    "cut": put(b'{"title":"x"', ""),
    "two": put(b'{"title":"x"}{}', ""),
    "single quotes": put(b"{'title':'x'}", ""),
    "not UTF-8": put(b'{"title":"\xff\xfe"}', ""),
    "overlong UTF-8": put(b'{"title":"\xc0\xaf"}', ""),
    "raw surrogate": put(b'{"title":"\xed\xa0\x80"}', ""),
    "escaped surrogate": put(b'{"title":"\\ud800"}', ""),
    "raw NUL": put(b'{"title":"\x00"}', ""),
    "NaN": put(b'{"title":"x","score":NaN}', ""),
    "infinity": put(b'{"title":"x","score":Infinity}', ""),
    "byte order mark": put(b'\xff\xfe{\x00"\x00', ""),
    "100k arrays": put(b"[" * 100_000, ""),
    "100k objects": put(b'{"a":' * 100_000 + b"1" + b"}" * 100_000, ""),
    "100k in a field": put(b'{"title":"x","extra":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001),
    "1000 in a field": put(b'{"title":"x","extra":' + b'{"a":' * 1000 + b"1" + b"}" * 1001),
    # shape
    "array": put(b"[1]", ""),
    "null": put(b"null", ""),
    "string": put(b'"x"', ""),
    "unknown field": put(b'{"title":"x","nope":1}', "/nope"),
    "missing field": put(b'{"hits":1}', "/title"),
    "other id": put(b'{"id":"other","title":"x"}', "/id"),
    # types and ranges
    "number for string": put(b'{"title":1}', "/title"),
    "object for string": put(b'{"title":{"$ne":null}}', "/title"),
    "too long": put(b'{"title":"' + b"x" * 301 + b'"}', "/title"),
    "string for integer": put(b'{"title":"x","hits":"1"}', "/hits"),
    "boolean for integer": put(b'{"title":"x","hits":true}', "/hits"),
    "beyond int64": put(b'{"title":"x","hits":9223372036854775808}', "/hits"),
    "below int64": put(b'{"title":"x","hits":-9223372036854775809}', "/hits"),
    "huge integer": put(b'{"title":"x","hits":' + b"9" * 5000 + b"}"),
    "fraction": put(b'{"title":"x","hits":1.5}', "/hits"),
    "beyond double": put(b'{"title":"x","score":1e999}'),
    "decimal as number": put(b'{"title":"x","price":1.5}', "/price"),
    "35 digits": put(b'{"title":"x","price":"' + b"1" * 35 + b'"}', "/price"),
    "decimal NaN": put(b'{"title":"x","price":"NaN"}', "/price"),
    "no such day": put(b'{"title":"x","seen":"2026-02-30T00:00:00Z"}', "/seen"),
    "no time": put(b'{"title":"x","seen":"yesterday"}', "/seen"),
    "not base64": put(b'{"title":"x","data":"?"}', "/data"),
    "set of objects": put(b'{"title":"x","tags":[{"$gt":""}]}', "/tags/0"),
    # operators of MongoDB, SQL, Lua and paths as names of fields
    "$where": put(b'{"title":"x","$where":"sleep(1000)"}', "/$where"),
    "$set": patch(b'{"$set":{"hits":1}}', "/$set", media_type=MERGE),
    "dotted": patch(b'{"extra.a":1}', media_type=MERGE),
    "SQL name": put(b'{"title":"x","hits\\" = 1; DROP TABLE articles; --":1}'),
    "NUL name": put(b'{"title":"x","a\\u0000b":1}'),
    "_id": put(b'{"title":"x","_id":1}', "/_id"),
    "__proto__": put(b'{"title":"x","__proto__":{}}', "/__proto__"),
    # operators
    "no operator": patch(b'{"hits":{"$inc":1}}', "/hits/$inc", media_type=UPDATE),
    "two operators": patch(b'{"hits":{"inc":1,"mul":2}}', "/hits", media_type=UPDATE),
    "text for inc": patch(
        b'{"hits":{"inc":"1); redis.call(\'FLUSHALL\')"}}', "/hits/inc", media_type=UPDATE
    ),
    "inc of text": patch(b'{"title":{"inc":1}}', "/title/inc", media_type=UPDATE),
    "inc beyond": patch(b'{"hits":{"inc":9223372036854775808}}', "/hits/inc", media_type=UPDATE),
    "operator on nothing": patch(b'{"nope":{"inc":1}}', "/nope", media_type=UPDATE),
    "bare operator": patch(b'{"inc":1}', media_type=UPDATE),
    # patches
    "JSON Patch object": patch(b"{}", "", media_type=JSON_PATCH),
    "JSON Patch op": patch(b'[{"op":"eval","path":"/title","value":"x"}]', media_type=JSON_PATCH),
    "JSON Patch path": patch(b'[{"op":"add","path":"title","value":"x"}]', media_type=JSON_PATCH),
    "JSON Patch deep": patch(
        b'[{"op":"add","path":"' + b"/a" * 50_000 + b'","value":1}]', media_type=JSON_PATCH
    ),
    "merge null": patch(b'{"title":null}', "/title", media_type=MERGE),
    # ids
    "dot": at("."),
    "dot dot": at(".."),
    "escaped dot dot": at("%2e%2e"),
    "up": at("../../admin", 404, None),
    "slash": at("a/b", 404, None),
    "escaped slash": at("a%2Fb"),
    "twice escaped is not decoded": get("articles/a%252Fb", status=404),
    "NUL": at("a%00b"),
    "newline": at("a%0D%0Ab"),
    "C1": at("%C2%85"),
    "4 KB": at("a" * 4096),
    "513 bytes": at("%C3%A9" * 257),
    "id not UTF-8": at("%ff%fe"),
    "id overlong": at("%c0%ae%c0%ae"),
    "id surrogate": at("%ed%a0%80"),
    "half an escape": at("a%2"),
    "no escape": at("a%zz"),
    "id in body": Hostile("POST", "articles", b'{"id":"a/b","title":"x"}', pointer="/id"),
    "id of a wrong type": Hostile(
        "POST", "articles", b'{"id":{"$ne":1},"title":"x"}', pointer="/id"
    ),
    # names
    "class injection": get("articles'--", status=404),
    "class traversal": get("..%2f..%2fadmin/x", "class"),
    "class unknown": get("system.users/x", status=404),
    # parameters
    "unknown parameter": get("articles/there?frields=title", "frields"),
    "twice": get("articles?limit=1&limit=2", "limit"),
    "field injection": get("articles/there?fields=title,hits;--", "fields"),
    "field operator": get("articles/there?fields=$where", "fields"),
    "order injection": get("articles?order=hits;DROP%20TABLE%20x", "order"),
    "order by nothing": get("articles?order=-", "order"),
    "condition on nothing": get("articles?$where=1", "$where"),
    "condition of an operator": get("articles?hits.$gt=1", "hits.$gt"),
    "filter injection": get("articles?filter={%22$where%22:%221%22}", "filter/$where"),
    "query injection": Hostile(
        "POST", "articles/query", b'{"filter":{"eq":["hits",{"$gt":0}]}}', pointer="/filter/eq/1"
    ),
    "query code": Hostile(
        "POST", "articles/query", b'{"filter":{"$where":"1"}}', pointer="/filter/$where"
    ),
    "limit zero": get("articles?limit=0", "limit"),
    "limit huge": get("articles?limit=" + "9" * 400, "limit"),
    "limit text": get("articles?limit=1%20OR%201=1", "limit"),
    "cursor": get("articles?after='%20OR%201=1--", "after"),
    "raw blanks": get("articles?after=' OR 1=1--"),
    "cursor binary": get("articles?after=%00%ff", "after"),
    "cursor forged": get("articles?order=hits&after=eyJhIjoxfQ.AAAA", "after"),
    "ids hostile": get("articles?ids=a%252Fb,%2500", "ids"),
    "ids many": get("articles?ids=" + ",".join("a" * 3 for _ in range(2000)), "ids"),
    "query broken": get("articles?limit=%", "limit"),
    "query too long": get("articles?after=" + "a" * 70_000),
    "export after": get("articles/export?after=%00", "after"),
    "import skip": Hostile("POST", "articles/import?skip=-1", b"{}\n", NDJSON, pointer="skip"),
    # headers
    "If-Match": put(b'{"title":"x"}', "If-Match", headers={"if-match": "DROP TABLE"}),
    "If-Match huge": put(
        b'{"title":"x"}', headers={"if-match": ", ".join(['"a"'] * 8000)}, status=412
    ),
    "If-None-Match": get("articles/there", "If-None-Match", headers={"if-none-match": '"'}),
    "key too long": put(
        b'{"title":"x"}', "Idempotency-Key", headers={"idempotency-key": "k" * 256}
    ),
    "key not ASCII": put(
        b'{"title":"x"}', "Idempotency-Key", headers={"idempotency-key": "k\u00e9y"}
    ),
    "key with tab": put(b'{"title":"x"}', "Idempotency-Key", headers={"idempotency-key": "a\tb"}),
    "Accept": get("articles/there", headers={"accept": "text/html;q=x"}, status=406),
    "Accept too long": get(
        "articles/there", "Accept", headers={"accept": "application/json," * 7_000}
    ),
    "type too long": put(
        b'{"title":"x"}', media_type="application/json" + ";a=b" * 300, status=415
    ),
    "type": put(b"<a/>", media_type="application/xml", status=415),
    "charset": put(b'{"title":"x"}', media_type="application/json; charset=utf-7", status=415),
    "body on GET": Hostile("GET", "articles/there", b'{"$where":1}'),
    # methods
    "method": Hostile("TRACE", "articles/there", status=405),
    "method unknown": Hostile("PROPFIND", "articles/there", status=405),
    # sizes
    "10 MB": put(b'{"title":"' + b"x" * TEN_MB + b'"}', status=413),
    # batches
    "batch of nothing": Hostile("POST", "batch", b"{}", pointer="/operations"),
    "batch of too many": Hostile(
        "POST",
        "batch",
        b'{"operations":[' + b",".join([b"{}"] * 1001) + b"]}",
        pointer="/operations",
    ),
    "batch member": Hostile("POST", "batch", b'{"operations":[],"eval":1}', pointer="/eval"),
    "many of too many": Hostile("POST", "articles", b"[" + b",".join([b"{}"] * 1001) + b"]"),
}
