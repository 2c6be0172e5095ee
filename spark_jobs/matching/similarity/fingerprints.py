"""Fingerprints of partitions: whether a former run matched the same inputs, and its links.

A partition is matched again unless all inputs of its links are unchanged: the specification, its
objects with the copies from beyond its border, and the users' decisions on them. The fourth part is
a hash of the links themselves, so an edited result, or a mix of several runs, is detected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

__all__ = ["REASONS", "Fingerprint", "FormerRow", "PartitionLink", "reason_to_match"]

_BYTES: Final = 12
REASONS: Final = ("specification", "objects", "decisions", "links")
"""The parts of a fingerprint, and the reasons to match a partition again.

The specification is first: if it changed, the other parts do not matter.
"""


class PartitionLink(NamedTuple):
    """A link in the output of a partition."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    similarity: float
    terms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FormerRow:
    """A row of a former result about the objects of one partition.

    Attributes:
        fingerprint: The fingerprint of that partition; None for a rejected link of the partition.
        link: The link; None: the row has no link found by similarity.
    """

    fingerprint: str | None
    link: PartitionLink | None = None

    def to_json(self) -> str:
        link = None if self.link is None else self.link._asdict()
        return json.dumps({"fingerprint": self.fingerprint, "link": link})

    @classmethod
    def from_json(cls, text: str) -> Self:
        document = json.loads(text)
        link = document["link"]
        if link is not None:
            ends = tuple(link["left"]), tuple(link["right"])
            link = PartitionLink(*ends, link["similarity"], link["terms"])
        return cls(document["fingerprint"], link)


class Fingerprint(NamedTuple):
    """Hashes of the inputs of a partition's links, and of the links."""

    specification: str
    objects: str
    decisions: str
    links: str = ""

    @classmethod
    def of(cls, settings: str, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Hash the objects of a partition, regardless of the order of rows."""
        sorted_ = sorted(rows, key=lambda row: (row["side"], row["id"]))
        objects = ([row["side"], row["id"], row["owned"], row["record"]] for row in sorted_)
        decisions = (
            [row["side"], row["id"], row["link"], sorted(row["cannot"] or ())] for row in sorted_
        )
        return cls(_hash([settings]), _hash(objects), _hash(decisions))

    def with_links(self, links: Iterable[PartitionLink]) -> Self:
        return self._replace(links=_hash(map(list, sorted(links, key=lambda link: link[:2]))))

    def __str__(self) -> str:
        return "-".join(self)


def _hash(values: Iterable[Any]) -> str:
    digest = blake2b(digest_size=_BYTES)
    for value in values:
        digest.update(json.dumps(value, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def reason_to_match(present: Fingerprint, former: Sequence[FormerRow]) -> str | None:
    """Return the difference from a former result, one of `REASONS`; None: its links are valid.

    A partition that is missing in the former result counts as changed objects.
    """
    counts = Counter(row.fingerprint for row in former if row.fingerprint is not None)
    if not counts:
        return "objects"
    stated = max(sorted(counts), key=counts.__getitem__)
    current = present.with_links(row.link for row in former if row.link is not None)
    if stated == str(current):
        return None
    parts = stated.split("-")
    return next(
        (name for name, old, new in zip(REASONS, parts, current, strict=False) if old != new),
        "links",
    )
