"""The state of standing queries after a batch, and the directory in which it is committed.

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

_NEVER: Final = float("-inf")


@dataclass(frozen=True, slots=True)
class Segment:
    """A file with rows of a store.

    Attributes:
        layout: The index of the layout among those of its epoch.
        tier: How often its rows have been merged.
    """

    layout: int
    group: int
    path: str
    rows: int
    tier: int


@dataclass(frozen=True, slots=True)
class Epoch:
    """A plan epoch: the rows that arrived while a plan was active, in the plan's layouts.

    Attributes:
        newest_s: The latest start of a row in it.
    """

    number: int
    newest_s: float
    layouts: tuple[StoreLayout, ...]
    segments: tuple[Segment, ...]

    @property
    def is_empty(self) -> bool:
        return self.newest_s == _NEVER


@dataclass(frozen=True, slots=True)
class Commit:
    """The state after a batch.

    Attributes:
        batch: The id of the batch; -1 before the first one.
        attempt: The id of its execution.
        plan: The fingerprint of the active plan.
        parallelism: The number of partition groups.
        latest_s: The latest time of a tuple that was not late.
        epoch_from_s: The watermark at the start of the last epoch.
        sent: Rows sent on each hop of the plan, by its probe order; and
        stored: rows sent to stores, by layout, both since the plan became active.
        late: Late tuples, which were dropped.
        results: Results of all batches.
        has_results: Whether this batch had results.
    """

    batch: int = -1
    attempt: str = ""
    plan: str = ""
    parallelism: int = 0
    latest_s: float = _NEVER
    epoch_from_s: float = _NEVER
    epochs: tuple[Epoch, ...] = ()
    sent: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    late: int = 0
    results: int = 0
    has_results: bool = False

    @property
    def files(self) -> frozenset[str]:
        return frozenset(segment.path for epoch in self.epochs for segment in epoch.segments)

    @property
    def rows(self) -> int:
        """The number of stored rows."""
        return sum(segment.rows for epoch in self.epochs for segment in epoch.segments)

    def to_json(self) -> dict[str, Any]:
        epochs = [
            {
                "number": epoch.number,
                "newest_s": _finite(epoch.newest_s),
                "layouts": [layout.to_json() for layout in epoch.layouts],
                "segments": [[s.layout, s.group, s.path, s.rows, s.tier] for s in epoch.segments],
            }
            for epoch in self.epochs
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
                epoch["number"],
                _or_never(epoch["newest_s"]),
                tuple(map(StoreLayout.from_json, epoch["layouts"])),
                tuple(Segment(*segment) for segment in epoch["segments"]),
            )
            for epoch in document.pop("epochs")
        )
        for name in ("latest_s", "epoch_from_s"):
            document[name] = _or_never(document[name])
        for name in ("sent", "stored"):
            document[name] = tuple(document[name])
        return cls(**document, epochs=epochs)


class StateDirectory(CommitDirectory[Commit]):
    """The state of standing queries."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, Commit, "state")


def fingerprint(plan: Plan) -> str:
    """Return a text that is equal for plans with the same execution."""
    document = {
        "queries": {name: query.to_json() for name, query in plan.workload.queries.items()},
        "streams": sorted(plan.workload.streams),
        "orders": sorted(_text(order.to_json()) for order in plan.choice.values()),
        "stores": sorted(_text(store.to_json()) for store in plan.stores),
        "parallelism": plan.workload.parallelism,
    }
    return _text(document)


def _text(document: dict[str, Any]) -> str:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()


def _finite(value: float) -> float | None:
    return None if value == _NEVER else value


def _or_never(value: float | None) -> float:
    return _NEVER if value is None else value
