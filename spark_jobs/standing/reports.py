"""Reports: what tasks have done, added up by the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import orjson

from spark_jobs.standing.commits import Segment

__all__ = ["Report", "Written"]


@dataclass(frozen=True, slots=True)
class Written:
    """A segment that was written.

    Attributes:
        newest_s: The latest time at which one of its rows begins.
        replaces: The paths of those whose rows it has; none: its rows have arrived.
    """

    segment: Segment
    newest_s: float
    replaces: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """What one or more tasks have done.

    Attributes:
        latest_s: The latest time of a tuple that was not late.
        sent: By hop, the rows that were sent to partition groups; a broadcast counts as many.
    """

    late: int = 0
    latest_s: float = float("-inf")
    sent: Counter[int] = field(default_factory=Counter)
    written: list[Written] = field(default_factory=list)
    results: int = 0

    def to_json(self) -> bytes:
        document = {**asdict(self), "sent": sorted(self.sent.items())}
        if self.latest_s == float("-inf"):
            del document["latest_s"]
        return orjson.dumps(document)

    @classmethod
    def total(cls, texts: Iterable[bytes]) -> Report:
        found = cls()
        for document in map(orjson.loads, texts):
            found.late += document["late"]
            found.latest_s = max(found.latest_s, document.get("latest_s", found.latest_s))
            found.sent.update(dict(document["sent"]))
            found.written += [
                Written(Segment(**each["segment"]), each["newest_s"], tuple(each["replaces"]))
                for each in document["written"]
            ]
            found.results += document["results"]
        # Tasks end in any order; what is committed does not depend on it.
        found.written.sort(key=lambda each: each.segment.path)
        return found
