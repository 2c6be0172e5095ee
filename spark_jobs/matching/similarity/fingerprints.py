"""Fingerprints of partitions: whether a former run has matched the same, and what it found.

A partition is matched anew unless all that decides its links is as it was: the specification, its
objects with those copied from beyond its border, and what people decided on them. The fourth part
is a hash of the links themselves, so that a former result vouches for them: one that was edited, or
that holds rows of several runs, does not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

__all__ = ["REASONS", "Fingerprint", "FormerRow", "GivenLink", "reason_to_match"]

_BYTES: Final = 12
REASONS: Final = ("specification", "objects", "decisions", "links")
"""The parts of a fingerprint, and the reasons for which a partition is matched anew.

The specification is first: if it has changed, nothing else counts.
"""


class GivenLink(NamedTuple):
    """A link that a partition gives."""

    left: tuple[str, ...]
    right: tuple[str, ...]
    similarity: float
    terms: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FormerRow:
    """What a former result says of the objects of one partition.

    Attributes:
        fingerprint: Of that partition; None for a link that was given and not kept.
        link: None: the row is no link that was found.
    """

    fingerprint: str | None
    link: GivenLink | None = None

    def to_json(self) -> str:
        link = None if self.link is None else self.link._asdict()
        return json.dumps({"fingerprint": self.fingerprint, "link": link})

    @classmethod
    def from_json(cls, text: str) -> Self:
        document = json.loads(text)
        link = document["link"]
        if link is not None:
            ends = tuple(link["left"]), tuple(link["right"])
            link = GivenLink(*ends, link["similarity"], link["terms"])
        return cls(document["fingerprint"], link)


class Fingerprint(NamedTuple):
    """Hashes of what decides the links of a partition, and of the links."""

    specification: str
    objects: str
    decisions: str
    links: str = ""

    @classmethod
    def of(cls, settings: str, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Hash the objects of a partition; the order of the rows does not count."""
        sorted_ = sorted(rows, key=lambda row: (row["side"], row["id"]))
        objects = ([row["side"], row["id"], row["owned"], row["record"]] for row in sorted_)
        decisions = (
            [row["side"], row["id"], row["link"], sorted(row["cannot"] or ())] for row in sorted_
        )
        return cls(_hash([settings]), _hash(objects), _hash(decisions))

    def vouching_for(self, links: Iterable[GivenLink]) -> Self:
        return self._replace(links=_hash(map(list, sorted(links, key=lambda link: link[:2]))))

    def __str__(self) -> str:
        return "-".join(self)


def _hash(values: Iterable[Any]) -> str:
    digest = blake2b(digest_size=_BYTES)
    for value in values:
        digest.update(json.dumps(value, sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def reason_to_match(present: Fingerprint, former: Sequence[FormerRow]) -> str | None:
    """Say what differs from a former result: one of `REASONS`; None: its links are those of now.

    A partition that the former result does not know has other objects.
    """
    known = Counter(row.fingerprint for row in former if row.fingerprint is not None)
    if not known:
        return "objects"
    stated = max(sorted(known), key=known.__getitem__)
    vouched = present.vouching_for(row.link for row in former if row.link is not None)
    if stated == str(vouched):
        return None
    parts = stated.split("-")
    return next(
        (name for name, part, now in zip(REASONS, parts, vouched, strict=False) if part != now),
        "links",
    )
