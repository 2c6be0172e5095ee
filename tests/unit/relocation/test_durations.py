"""How long a parallel track takes, and what composites have to do with it (oracle E4)."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from benchmarks.harness.paced_cluster import LocalCluster
from mediator.relocation.cluster import Cluster, make_cluster
from mediator.relocation.join_states import JoinStates
from mediator.relocation.messages import Relocate
from mediator.standing.state import JoinedTuple
from tests.properties.relocation.scenario import Found, found
from tests.unit.standing.papers_queries import document, query, workload

_WINDOW_S = 20.0
_STEP_S = 0.25
_SENDER, _RECEIVER = "worker:0", "worker:1"


class NewestPart:
    """Windows of pairs: a composite is as old as its newest part."""

    @staticmethod
    def join(
        _: JoinStates, one: JoinedTuple, other: JoinedTuple, window_s: float
    ) -> JoinedTuple | None:
        if abs(one.last_s - other.last_s) > window_s:
            return None
        newest_s = max(one.last_s, other.last_s)
        return JoinedTuple({**one.tuples, **other.tuples}, newest_s, newest_s)


def cluster_of(relations: str, orders: tuple[str, str]) -> Cluster:
    of = document(dict.fromkeys(relations, "k"))
    of["queries"] = {"q": query(dict.fromkeys(relations, "k"), _WINDOW_S)}
    each = {_SENDER: {"q": orders[0]}, _RECEIVER: {"q": orders[1]}}
    return make_cluster(workload(of), [0, 0, 1, 1], 2, orders=each)


def run(cluster: Cluster, *, move: bool) -> tuple[Found, float]:
    """Feed tuples for six windows; return the results, and the windows until old was purged."""
    draw = Random(1)
    running = LocalCluster(cluster)
    relations = sorted(cluster.layout.attributes)
    began_s = purged_s = now_s = 0.0
    while now_s < 6 * _WINDOW_S:
        now_s += _STEP_S
        relation = draw.choice(relations)
        running.append(relation, now_s, {"k": draw.randrange(10)})
        for other in relations:
            running.append(other, now_s, None)
        if move and now_s == 2 * _WINDOW_S:
            began_s = now_s
            running.request(Relocate("ptlb", _SENDER, _RECEIVER, 1000))
        running.run()
        present = running.manager.relocations.get(1)
        if present is not None and present.phase == "done" and not purged_s:
            purged_s = now_s
    return found(running.results), (purged_s - began_s) / _WINDOW_S


def differences(relations: str, orders: tuple[str, str]) -> tuple[float, float, float]:
    """Return the shares of results that are missing and too many, and the duration in windows."""
    moved, windows = run(cluster_of(relations, orders), move=True)
    stays, _ = run(cluster_of(relations, orders), move=False)
    missing, extra = (stays - moved).total(), (moved - stays).total()
    assert max(moved.values()) == 1, "a duplicate"
    return missing / stays.total(), extra / stays.total(), windows


@pytest.mark.parametrize(
    ("relations", "orders"),
    [("AB", ("AB", "AB")), ("ABC", ("ABC", "BCA")), ("ABCD", ("ABCD", "CDBA"))],
)
def test_under_one_global_window_a_window_is_enough(
    relations: str, orders: tuple[str, str]
) -> None:
    missing, extra, windows = differences(relations, orders)
    assert (missing, extra) == (0, 0)
    assert 1.0 <= windows <= 1.1


@pytest.mark.parametrize(
    ("relations", "orders", "most"),
    [("AB", ("AB", "AB"), 1.1), ("ABC", ("ABC", "BCA"), 2.1), ("ABCD", ("ABCD", "CDBA"), 3.1)],
)
def test_if_composites_die_with_their_newest_part_plans_differ(
    relations: str, orders: tuple[str, str], most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JoinStates, "_join", NewestPart.join)
    missing, extra, windows = differences(relations, orders)
    assert most - 0.6 <= windows <= most
    assert (missing > 0.02 and extra > 0.02) is (len(relations) > 2)


def _old_in_streams_only(self: Any, partition: int, watermark_s: float) -> bool:
    return any(
        state.newest_old_s >= watermark_s - self._retention_s[join]
        for join, state in self._states(partition).items()
        if len(join.relations) == 1
    )


def test_states_that_outlive_their_parts_are_inspected_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of equal plans nothing is lost, as long as every state is looked at."""
    monkeypatch.setattr(JoinStates, "_join", NewestPart.join)
    assert differences("ABC", ("ABC", "ABC"))[:2] == (0, 0)
    monkeypatch.setattr(JoinStates, "holds_old", _old_in_streams_only)
    missing, _, _ = differences("ABC", ("ABC", "ABC"))
    assert missing > 0


def test_an_idle_input_does_not_keep_the_old() -> None:
    cluster = cluster_of("ABC", ("ABC", "BCA"))
    running = LocalCluster(cluster)
    for relation in "ABC":
        running.append(relation, 0.0, {"k": 1})
    running.request(Relocate("ptlb", _SENDER, _RECEIVER, 1000))
    phases: Counter[str] = Counter()
    for second in range(1, 30):
        # C is idle: only heartbeats say that time goes on.
        running.append("A", second, {"k": 1})
        running.append("B", second, {"k": 1})
        running.append("C", second, None)
        running.run()
        phases[running.manager.relocations[1].phase] += 1
    assert phases["done"] >= 29 - 22


@pytest.mark.parametrize("idle", ["A", "C"])
def test_without_heartbeats_it_would_not_end(idle: str) -> None:
    running = LocalCluster(cluster_of("ABC", ("ABC", "BCA")))
    for relation in "ABC":
        for key in range(10):
            running.append(relation, 0.0, {"k": key})
    running.request(Relocate("ptlb", _SENDER, _RECEIVER, 1000))
    for second in range(1, 60):
        for relation in set("ABC") - {idle}:
            running.append(relation, second, {"k": second})
        running.run()
    phases = [running.manager.relocations[1].phase]
    running.append(idle, 60, None)
    running.run()
    phases.append(running.manager.relocations[1].phase)
    assert phases == ["duplicating", "done"]
