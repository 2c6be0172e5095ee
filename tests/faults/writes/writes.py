"""Writes of clients, and the recording of their outcomes in histories."""

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
    "JOINT_FIELDS",
    "TWO",
    "UPDATE",
    "Outcome",
    "Write",
    "is_uncertain",
    "record_response",
    "result_of",
]

UPDATE = {"content-type": "application/vnd.portolan.update+json"}
LOCKED = "/problems/locked"
UNCERTAIN = {"/problems/unavailable", "/problems/outcome-unknown"}
METHODS = {"update": "PATCH", "put": "PUT", "delete": "DELETE"}
SUCCESS = (200, 201, 204)

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
"""Fields of each class; all but `extra` are incremented together."""
BATCHED = "batched_"
"""Prefix of classes whose operations share store calls; each has a counterpart without."""
CLASSES = {prefix + name: fields for prefix in ("", BATCHED) for name, fields in _CLASSES.items()}
JOINT_FIELDS = {
    name: [field for field in fields if field != "extra"] for name, fields in CLASSES.items()
}
INCREMENTS = {
    name: {field: {"inc": 1} for field in fields} for name, fields in JOINT_FIELDS.items()
}


@dataclass(frozen=True)
class Write:
    """A write that is about to be sent.

    Attributes:
        kind: The operation; an update increments fields.
        history: The history of its object.
        attempt: The known state of the object.
        body: The body of the request.
        epoch: The epoch of a put.
        base_versions: The versions in its If-Match.
    """

    kind: Kind
    history: History
    attempt: Attempt
    body: Any = None
    epoch: int = 0
    base_versions: Versions | None = None

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
        """Increment the joint fields."""
        history.additions += 1
        return cls("update", history, history.attempt(), INCREMENTS[history.class_name])

    @classmethod
    def update_extra(cls, history: History) -> Write:
        """Increment only `extra`."""
        return cls("update", history, history.attempt(), {"extra": {"inc": 1}})

    @classmethod
    def update_if_match(cls, history: History, values: Mapping[str, float], tag: str) -> Write:
        """Write the values that were read plus one, with If-Match."""
        history.additions += 1
        body = {name: value + 1 for name, value in values.items() if name != "id"}
        return cls("update", history, history.attempt(), body, base_versions=_versions(tag))

    @property
    def method(self) -> str:
        """The method of its request."""
        return METHODS[self.kind]

    @property
    def operation(self) -> dict[str, Any]:
        """The write as an operation of a batch."""
        class_name, _, id_ = self.history.name.partition("/")
        body = {} if self.body is None else {"body": self.body}
        return {"op": self.kind, "class": class_name, "id": id_, **body}

    def note(self, result: Mapping[str, Any] | None) -> Outcome:
        """Record the outcome; None: unknown."""
        if result is None or is_uncertain(result):
            return "unknown"
        if result["status"] in SUCCESS:
            self._record_acknowledged(result)
            return "acknowledged"
        self._record_refused(result)
        return "refused"

    def _record_acknowledged(self, result: Mapping[str, Any]) -> None:
        versions = _position(result["position"])
        if self.kind == "delete":
            return self.history.record_deletion(self.attempt, versions)
        values = {name: value for name, value in result["body"].items() if name != "id"}
        confirmed = {name: value for name, value in values.items() if GROUPS[name] in versions}
        self.history.incomplete += confirmed != values
        return self.history.record_write(self.attempt, versions, confirmed, self.base_versions)

    def _record_refused(self, result: Mapping[str, Any]) -> None:
        is_absent = result["status"] == 404 and self.kind != "put"
        assert is_absent or result["status"] == 412 or result["problem"]["type"] == LOCKED, result
        if is_absent:
            self.history.record_absence(self.attempt)
        if self.kind == "delete":
            self.history.record_refused_deletion(self.attempt)
        elif self.kind == "put":
            self.history.record_refused_put(self.epoch)
        elif "extra" not in self.body:
            self.history.additions -= 1


def record_response(
    history: History, attempt: Attempt, response: Answer | None
) -> Literal["whole", "partial", "none"]:
    """Record the response to a read: a whole object, a partial one, or none."""
    if response is None or response.status == 503:
        return "none"
    if response.status == 404:
        history.record_absence(attempt)
        return "none"
    assert response.status == 200, response
    partial = "portolan-partial" in response.headers
    values = {name: value for name, value in response.json().items() if name != "id"}
    history.record_read(attempt, _versions(response.headers["etag"]), values, partial=partial)
    return "partial" if partial else "whole"


def result_of(response: Answer | None) -> dict[str, Any] | None:
    """Return a response in the form of a batch result."""
    if response is None:
        return None
    result: dict[str, Any] = {"status": response.status}
    if response.status not in SUCCESS:
        return {**result, "problem": response.problem()}
    body = response.json() if response.body else {}
    return {**result, "position": response.headers.get("portolan-position"), "body": body}


def is_uncertain(result: Mapping[str, Any]) -> bool:
    """Return whether the write may have taken effect."""
    return result["status"] == 503 and result["problem"]["type"] in UNCERTAIN


def _versions(tag: str) -> dict[str, int]:
    return {group: int(version) for group, version in re.findall(r"\.(\w+):(\d+)", tag)}


def _position(position: str) -> dict[str, int]:
    text = base64.urlsafe_b64decode(position + "=" * (-len(position) % 4)).decode()
    return {group: int(v) for group, v in re.findall(r"(\w+):(\d+)", text.partition("#")[2])}
