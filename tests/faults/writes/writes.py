"""Operations of clients on objects, and what their answers prove."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tests.faults.caching.http_client import Answer
from tests.faults.writes.history import BASE, GROUPS, Attempt, History, Versions
from tests.process.service import field_on

__all__ = [
    "BATCHED",
    "CLASSES",
    "TOGETHER",
    "TWO",
    "UPDATE",
    "Outcome",
    "Write",
    "is_uncertain",
    "look",
    "result_of",
]

UPDATE = {"content-type": "application/vnd.portolan.update+json"}
LOCKED = "/problems/locked"
UNCERTAIN = {"/problems/unavailable", "/problems/outcome-unknown"}
METHODS = {"update": "PATCH", "put": "PUT", "delete": "DELETE"}
WELL = (200, 201, 204)

Outcome: TypeAlias = Literal["acknowledged", "refused", "unknown"]
Kind: TypeAlias = Literal["update", "put", "delete"]

# The MongoDB stand-in has no exact integers.
REDIS = field_on("redis", "integer", default=0)
MONGO = field_on("mongo", "float", default=0)
POSTGRES = field_on("postgres", "integer", default=0)
TWO = {"left": {**REDIS, "group": "left"}, "right": POSTGRES}
_CLASSES: dict[str, dict[str, Any]] = {
    "on_redis": {"n": REDIS},
    "on_mongo": {"n": MONGO},
    "on_postgres": {"n": POSTGRES},
    "on_two": TWO,
    "on_three": {
        **TWO,
        "middle": {**MONGO, "group": "middle"},
        "extra": {**REDIS, "group": "extra"},
    },
}
"""Fields of each class; but for `extra` they are added to together."""
BATCHED = "batched_"
"""Prefix of classes whose operations share store calls; each has one like it that does not."""
CLASSES = {prefix + name: fields for prefix in ("", BATCHED) for name, fields in _CLASSES.items()}
TOGETHER = {
    name: [field for field in fields if field != "extra"] for name, fields in CLASSES.items()
}
ADDED = {name: {field: {"inc": 1} for field in fields} for name, fields in TOGETHER.items()}


@dataclass(frozen=True)
class Write:
    """A write that is about to be sent.

    Attributes:
        kind: What it does; an update adds one to fields.
        history: That of its object.
        attempt: What was known of the object.
        body: What is sent.
        epoch: That of a put.
        onto: What the object must be at.
    """

    kind: Kind
    history: History
    attempt: Attempt
    body: Any = None
    epoch: int = 0
    onto: Versions | None = None

    @classmethod
    def put(cls, history: History, epoch: int) -> Write:
        """Write all fields."""
        body = dict.fromkeys(CLASSES[history.class_name], epoch * BASE)
        return cls("put", history, history.put(epoch), body, epoch)

    @classmethod
    def delete(cls, history: History) -> Write:
        """Delete the object."""
        return cls("delete", history, history.delete())

    @classmethod
    def update(cls, history: History) -> Write:
        """Add to all fields that are added to together."""
        history.added += 1
        return cls("update", history, history.attempt(), ADDED[history.class_name])

    @classmethod
    def alone(cls, history: History) -> Write:
        """Add to the field that is added to alone."""
        return cls("update", history, history.attempt(), {"extra": {"inc": 1}})

    @classmethod
    def follow(cls, history: History, values: Mapping[str, float], tag: str) -> Write:
        """Write what was read, and one more, on condition that it has not changed."""
        history.added += 1
        body = {name: value + 1 for name, value in values.items() if name != "id"}
        return cls("update", history, history.attempt(), body, onto=_versions(tag))

    @property
    def method(self) -> str:
        """Of its request."""
        return METHODS[self.kind]

    @property
    def operation(self) -> dict[str, Any]:
        """It as an operation of a batch."""
        class_name, _, id_ = self.history.name.partition("/")
        body = {} if self.body is None else {"body": self.body}
        return {"op": self.kind, "class": class_name, "id": id_, **body}

    def note(self, result: Mapping[str, Any] | None) -> Outcome:
        """Record the outcome, which is unknown without a result."""
        if result is None or is_uncertain(result):
            return "unknown"
        if result["status"] in WELL:
            self._acknowledged(result)
            return "acknowledged"
        self._refused(result)
        return "refused"

    def _acknowledged(self, result: Mapping[str, Any]) -> None:
        versions = _position(result["position"])
        if self.kind == "delete":
            return self.history.deleted(self.attempt, versions)
        values = {name: value for name, value in result["body"].items() if name != "id"}
        confirmed = {name: value for name, value in values.items() if GROUPS[name] in versions}
        self.history.incomplete += confirmed != values
        return self.history.wrote(self.attempt, versions, confirmed, self.onto)

    def _refused(self, result: Mapping[str, Any]) -> None:
        is_absent = result["status"] == 404 and self.kind != "put"
        assert is_absent or result["status"] == 412 or result["problem"]["type"] == LOCKED, result
        if is_absent:
            self.history.absent(self.attempt)
        if self.kind == "delete":
            self.history.delete_refused(self.attempt)
        elif self.kind == "put":
            self.history.put_refused(self.epoch)
        elif "extra" not in self.body:
            self.history.added -= 1


def look(
    history: History, attempt: Attempt, answer: Answer | None
) -> Literal["whole", "part", "no"]:
    """Record what a read has shown: a whole object, a partial one, or nothing."""
    if answer is None or answer.status == 503:
        return "no"
    if answer.status == 404:
        history.absent(attempt)
        return "no"
    assert answer.status == 200, answer
    partial = "portolan-partial" in answer.headers
    values = {name: value for name, value in answer.json().items() if name != "id"}
    history.record_read(attempt, _versions(answer.headers["etag"]), values, partial=partial)
    return "part" if partial else "whole"


def result_of(answer: Answer | None) -> dict[str, Any] | None:
    """Return an answer as a result of a batch."""
    if answer is None:
        return None
    result: dict[str, Any] = {"status": answer.status}
    if answer.status not in WELL:
        return {**result, "problem": answer.problem()}
    body = answer.json() if answer.body else {}
    return {**result, "position": answer.headers.get("portolan-position"), "body": body}


def is_uncertain(result: Mapping[str, Any]) -> bool:
    """Whether it may have taken effect."""
    return result["status"] == 503 and result["problem"]["type"] in UNCERTAIN


def _versions(tag: str) -> dict[str, int]:
    return {group: int(version) for group, version in re.findall(r"\.(\w+):(\d+)", tag)}


def _position(position: str) -> dict[str, int]:
    text = base64.urlsafe_b64decode(position + "=" * (-len(position) % 4)).decode()
    return {group: int(v) for group, v in re.findall(r"(\w+):(\d+)", text.partition("#")[2])}
