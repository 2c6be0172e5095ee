"""Write intents on many records (`Lockable`): one call of a script for those of a partition."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mediator.stores.port import RecordKey, RecordState
from mediator.stores.redis.plan import Plan, Plans
from mediator.stores.redis.runs import MOST_WRITES

__all__ = ["MarkingRun", "marking_runs"]


class MarkingRun:
    """Records of one fragment and partition."""

    __slots__ = ("_ids", "_partition", "_plan")

    def __init__(self, plan: Plan, partition: int, ids: Sequence[str]) -> None:
        self._plan = plan
        self._partition = partition
        self._ids = ids

    def command(self, what: str, intent: str) -> bytes:
        """Pack the call; see ``intent.lua``."""
        return self._plan.marking(self._partition, self._ids, what, intent)

    def standings(
        self, reply: Sequence[list[bytes | None]]
    ) -> Iterator[tuple[RecordKey, RecordState]]:
        """Read the reply to the call."""
        fragment, standing = self._plan.fragment, self._plan.standing
        return (((fragment, id_), standing(t)) for id_, t in zip(self._ids, reply, strict=True))


def marking_runs(plans: Plans, keys: Sequence[RecordKey]) -> list[MarkingRun]:
    """Sort different records into runs, each short enough not to hold the server up."""
    ids: dict[tuple[Plan, int], list[str]] = {}
    for fragment, id_ in keys:
        plan = plans.of(fragment)
        ids.setdefault((plan, plan.partition(id_)), []).append(id_)
    return [
        MarkingRun(*place, own[at : at + MOST_WRITES])
        for place, own in ids.items()
        for at in range(0, len(own), MOST_WRITES)
    ]
