"""Reports of tasks, which the driver adds up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import orjson

from spark_jobs.standing.commits import Segment

__all__ = ["Report", "Written"]


@dataclass(frozen=True, slots=True)
class Written:
    """A written segment.

    Attributes:
        newest_s: The latest start of its rows.
        replaces: The paths of the segments that it merges; none: its rows are new.
    """

    segment: Segment
    newest_s: float
    replaces: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """The report of one or more tasks.

    Attributes:
        latest_s: The latest time of a tuple that was not late.
        sent: Rows sent to partition groups, by hop; a broadcast counts once per group.
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
        total_report = cls()
        for document in map(orjson.loads, texts):
            total_report.late += document["late"]
            total_report.latest_s = max(
                total_report.latest_s, document.get("latest_s", total_report.latest_s)
            )
            total_report.sent.update(dict(document["sent"]))
            total_report.written += [
                Written(
                    Segment(**written["segment"]), written["newest_s"], tuple(written["replaces"])
                )
                for written in document["written"]
            ]
            total_report.results += document["results"]
        # Tasks end in any order, which must not change the commit.
        total_report.written.sort(key=lambda written: written.segment.path)
        return total_report
