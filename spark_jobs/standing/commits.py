"""The state of standing queries after a batch, and the directory that it is committed in.

state/    segments, by epoch, store and partition group
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from mediator.standing.planning import Plan
from mediator.standing.probe_orders import StoreLayout
from spark_jobs.commit_directory import CommitDirectory, StateMismatch
from spark_jobs.standing.segments import FORMAT

__all__ = ["Commit", "Epoch", "Segment", "StateDirectory", "fingerprint"]

_LOWEST: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with rows of a store.

    Attributes:
        layout: The index of the layout among those of its epoch.
        tier: How often its rows have been merged with others.
    """

    layout: int
    group: int
    path: str
    rows: int
    tier: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """A plan epoch: what arrived while a plan was active, laid out as that says.

    Attributes:
        newest_s: No row in it begins later.
    """

    number: int
    newest_s: float
    layouts: tuple[StoreLayout, ...]
    segments: tuple[Segment, ...]

    @property
    def is_empty(self) -> bool:
        return self.newest_s == _LOWEST


@dataclass(frozen=True, slots=True)
class Commit:
    """The state after a batch.

    Attributes:
        batch: Its id; -1 before the first one.
        attempt: Which of its executions this was.
        plan: The fingerprint of the plan that is active.
        parallelism: Partition groups.
        latest_s: The latest time of a tuple that was not late.
        epoch_from_s: The watermark when the last epoch began.
        sent: Rows that were sent on each hop of the plan, by its probe order; and
        stored: those that were sent to be kept, by layout, both since it is active.
        late: Tuples that came too late, and were dropped.
        results: Results of all batches.
        has_results: Whether this batch had any.
    """

    batch: int = -1
    attempt: str = ""
    plan: str = ""
    parallelism: int = 0
    latest_s: float = _LOWEST
    epoch_from_s: float = _LOWEST
    epochs: tuple[Epoch, ...] = ()
    sent: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    late: int = 0
    results: int = 0
    has_results: bool = False

    @property
    def files(self) -> frozenset[str]:
        return frozenset(each.path for epoch in self.epochs for each in epoch.segments)

    @property
    def rows(self) -> int:
        """How many rows are stored."""
        return sum(each.rows for epoch in self.epochs for each in epoch.segments)

    def to_json(self) -> dict[str, Any]:
        epochs = [
            {
                "number": each.number,
                "newest_s": _finite(each.newest_s),
                "layouts": [layout.to_json() for layout in each.layouts],
                "segments": [[s.layout, s.group, s.path, s.rows, s.tier] for s in each.segments],
            }
            for each in self.epochs
        ]
        names = ("batch", "attempt", "plan", "parallelism", "sent", "stored", "late", "results")
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in (*names, "has_results")},
            "latest_s": _finite(self.latest_s),
            "epoch_from_s": _finite(self.epoch_from_s),
            "epochs": epochs,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Commit:
        if document.pop("format", None) != FORMAT:
            raise StateMismatch(f"the state is of another version than {FORMAT}")
        epochs = tuple(
            Epoch(
                each["number"],
                _or_lowest(each["newest_s"]),
                tuple(map(StoreLayout.from_json, each["layouts"])),
                tuple(Segment(*of) for of in each["segments"]),
            )
            for each in document.pop("epochs")
        )
        for name in ("latest_s", "epoch_from_s"):
            document[name] = _or_lowest(document[name])
        for name in ("sent", "stored"):
            document[name] = tuple(document[name])
        return cls(**document, epochs=epochs)


class StateDirectory(CommitDirectory[Commit]):
    """The state of standing queries."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Commit, "state")


def fingerprint(plan: Plan) -> str:
    """Return the same text for plans that are executed in the same way."""
    document = {
        "queries": {name: of.to_json() for name, of in plan.workload.queries.items()},
        "streams": sorted(plan.workload.streams),
        "orders": sorted(_text(each.to_json()) for each in plan.choice.values()),
        "stores": sorted(_text(each.to_json()) for each in plan.stores),
        "parallelism": plan.workload.parallelism,
    }
    return _text(document)


def _text(document: dict[str, Any]) -> str:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()


def _finite(value: float) -> float | None:
    return None if value == _LOWEST else value


def _or_lowest(value: float | None) -> float:
    return _LOWEST if value is None else value
