"""Each rule of the protocols is needed: without it, some run has wrong results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from mediator.relocation import worker as worker_module
from mediator.relocation.join_states import Adopted, JoinStates, adopt
from mediator.relocation.manager import Manager
from mediator.relocation.messages import Group, Routed, Strategy
from mediator.relocation.split import Split
from mediator.relocation.worker import Worker
from tests.properties.relocation.scenario import WINDOW_S, Scenario

Break = Callable[[pytest.MonkeyPatch], None]

_SEEDS = range(60)


def receivers_copies_are_new(patch: pytest.MonkeyPatch) -> None:
    def send(self: Any, route: Any, routed: Routed) -> None:
        receivers = [route.owner] if route.copy_to is None else [route.owner, route.copy_to]
        is_new = route.copy_to is not None
        self.outbox += [(receiver, replace(routed, is_new=is_new)) for receiver in receivers]

    begin = Worker._begin_receiving  # noqa: SLF001

    def begin_receiving(self: Worker, message: Any) -> None:
        begin(self, message)
        for partition in message.partitions:
            self.states.begin(partition, message.relocation)

    patch.setattr(Split, "_send", send)
    patch.setattr(Worker, "_begin_receiving", begin_receiving)


def new_tuples_never_meet(patch: pytest.MonkeyPatch) -> None:
    join = JoinStates._join  # noqa: SLF001

    def below_the_root_too(self: Any, *some: Any) -> Any:
        both = join(self, *some)
        is_new = both is not None and any(self._is_new(at, both) for at in self._relocations)
        return None if is_new else both

    patch.setattr(JoinStates, "_join", below_the_root_too)


def the_end_is_a_matter_of_time(patch: pytest.MonkeyPatch) -> None:
    """As with a timer, which is too short if an input is slower than expected."""
    holds_old = JoinStates.holds_old

    def soon(self: Any, partition: int, watermark_s: float) -> bool:
        return holds_old(self, partition, watermark_s + WINDOW_S / 2)

    patch.setattr(JoinStates, "holds_old", soon)


def the_end_is_not_inspected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JoinStates, "holds_old", lambda *_: False)


def shipped_before_all_markers(patch: pytest.MonkeyPatch) -> None:
    deactivated = Manager._on_deactivated  # noqa: SLF001

    def at_the_first(self: Manager, present: Any, message: Any) -> None:
        deactivated(self, replace(present, waiting_for=()), message)

    patch.setattr(Manager, "_on_deactivated", at_the_first)


def buffers_are_flushed_backwards(patch: pytest.MonkeyPatch) -> None:
    reactivate = Split._reactivate  # noqa: SLF001

    def backwards(self: Split, message: Any) -> None:
        self.buffered.reverse()
        reactivate(self, message)

    patch.setattr(Split, "_reactivate", backwards)


def newer_tuples_overtake_the_buffer(patch: pytest.MonkeyPatch) -> None:
    reactivate, read = Split._reactivate, Split.read  # noqa: SLF001
    buffers: dict[str, list[tuple[str, Any]]] = {}

    def without_flush(self: Split, message: Any) -> None:
        buffers[self.relation] = [(message.owner, routed) for routed in self.buffered]
        self.buffered = []
        reactivate(self, message)

    def flush_after(self: Split, entry: Any) -> None:
        read(self, entry)
        self.outbox += buffers.pop(self.relation, [])

    patch.setattr(Split, "_reactivate", without_flush)
    patch.setattr(Split, "read", flush_after)


def recomputed_rows_are_emitted(patch: pytest.MonkeyPatch) -> None:
    def adopt_and_emit(states: Any, group: Group) -> Adopted:
        for relation in [relations for relations in states.ids if len(relations) == 1]:
            for number, time_s, values, _ in group.states[relation]:
                routed = Routed(relation, number, time_s, values, group.partition)
                emitted.extend(states.insert(group.partition, routed))
        return Adopted(0, 0, 0)

    receive = Worker._receive  # noqa: SLF001
    emitted: list[Any] = []

    def receive_and_emit(self: Worker, message: Any) -> None:
        receive(self, message)
        self.results += emitted
        emitted.clear()

    patch.setattr(worker_module, "adopt", adopt_and_emit)
    patch.setattr(Worker, "_receive", receive_and_emit)


def unmatched_states_stay_empty(patch: pytest.MonkeyPatch) -> None:
    def matched_only(states: JoinStates, group: Group) -> Adopted:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(JoinStates, "recompute", lambda *_: 0)
            return adopt(states, group)

    patch.setattr(worker_module, "adopt", matched_only)


def watermarks_advance_during_the_pause(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Worker, "watermark_s", lambda self, _: min(self.watermarks.values()))


def repeated_tuples_count(patch: pytest.MonkeyPatch) -> None:
    insert = Worker._insert  # noqa: SLF001

    def always(self: Worker, routed: Routed) -> None:
        if (holding := self.holdings.get(routed.partition)) is not None:
            holding.processed[routed.relation] = 0
        insert(self, routed)

    patch.setattr(Worker, "_insert", always)


def restored_receivers_have_all(patch: pytest.MonkeyPatch) -> None:
    restore = Worker.restore

    def without_since(self: Worker, record: Any, logs: Any) -> None:
        for name, fields in record.items():
            if name.startswith("holding/"):
                fields["since"] = {}
        restore(self, record, logs)

    patch.setattr(Worker, "restore", without_since)


def restored_senders_have_no_flags(patch: pytest.MonkeyPatch) -> None:
    restore = Worker.restore

    def without_flags(self: Worker, record: Any, logs: Any) -> None:
        for name, fields in record.items():
            if name.startswith("holding/"):
                fields["switched"] = {}
        restore(self, record, logs)

    patch.setattr(Worker, "restore", without_flags)


def buffers_die_with_their_split(patch: pytest.MonkeyPatch) -> None:
    restore = Split.restore

    def empty(self: Split, record: Any, _: Any) -> None:
        restore(self, record, [])

    patch.setattr(Split, "restore", empty)


BREAKS_BY_FAULTS = {
    restored_receivers_have_all,
    restored_senders_have_no_flags,
    buffers_die_with_their_split,
    repeated_tuples_count,
}
"""Breaks that only a kill or a repetition reveals."""

BREAKS: list[tuple[Break, Strategy]] = [
    (receivers_copies_are_new, "ptlb"),
    (new_tuples_never_meet, "ptlb"),
    (the_end_is_a_matter_of_time, "ptlb"),
    (the_end_is_not_inspected, "ptlb"),
    (restored_receivers_have_all, "ptlb"),
    (restored_senders_have_no_flags, "ptlb"),
    (shipped_before_all_markers, "mslb"),
    (buffers_are_flushed_backwards, "mslb"),
    (newer_tuples_overtake_the_buffer, "mslb"),
    (recomputed_rows_are_emitted, "mslb"),
    (unmatched_states_stay_empty, "mslb"),
    (watermarks_advance_during_the_pause, "mslb"),
    (buffers_die_with_their_split, "mslb"),
    (repeated_tuples_count, "mslb"),
]


@pytest.mark.parametrize(
    ("broken", "strategy"), BREAKS, ids=[break_.__name__ for break_, _ in BREAKS]
)
def test_a_broken_rule_changes_results(
    broken: Break, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken(monkeypatch)
    for seed in _SEEDS:
        faults = broken in BREAKS_BY_FAULTS
        scenario = Scenario(seed, "ABC", strategies=(strategy,), faults=faults, keys=3)
        try:
            scenario.run()
            scenario.check()
        except (AssertionError, KeyError):
            return
    pytest.fail("no run has other results")
