"""The duration of a parallel track, and the effect of composites on it (oracle E4)."""

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
    queries = document(dict.fromkeys(relations, "k"))
    queries["queries"] = {"q": query(dict.fromkeys(relations, "k"), _WINDOW_S)}
    worker_orders = {_SENDER: {"q": orders[0]}, _RECEIVER: {"q": orders[1]}}
    return make_cluster(workload(queries), [0, 0, 1, 1], 2, orders=worker_orders)


def run(cluster: Cluster, *, move: bool) -> tuple[Found, float]:
    """Feed tuples for six windows; return the results, and the windows until old state is gone."""
    draw = Random(1)
    local_cluster = LocalCluster(cluster)
    relations = sorted(cluster.layout.attributes)
    start_s = end_s = now_s = 0.0
    while now_s < 6 * _WINDOW_S:
        now_s += _STEP_S
        relation = draw.choice(relations)
        local_cluster.append(relation, now_s, {"k": draw.randrange(10)})
        for other in relations:
            local_cluster.append(other, now_s, None)
        if move and now_s == 2 * _WINDOW_S:
            start_s = now_s
            local_cluster.request(Relocate("ptlb", _SENDER, _RECEIVER, 1000))
        local_cluster.run()
        present = local_cluster.manager.relocations.get(1)
        if present is not None and present.phase == "done" and not end_s:
            end_s = now_s
    return found(local_cluster.results), (end_s - start_s) / _WINDOW_S


def differences(relations: str, orders: tuple[str, str]) -> tuple[float, float, float]:
    """Return the shares of results that are missing and extra, and the duration in windows."""
    results, windows = run(cluster_of(relations, orders), move=True)
    expected, _ = run(cluster_of(relations, orders), move=False)
    missing, extra = (expected - results).total(), (results - expected).total()
    assert max(results.values()) == 1, "a duplicate"
    return missing / expected.total(), extra / expected.total(), windows


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
    ("relations", "orders", "max_windows"),
    [("AB", ("AB", "AB"), 1.1), ("ABC", ("ABC", "BCA"), 2.1), ("ABCD", ("ABCD", "CDBA"), 3.1)],
)
def test_if_composites_die_with_their_newest_part_plans_differ(
    relations: str, orders: tuple[str, str], max_windows: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JoinStates, "_join", NewestPart.join)
    missing, extra, windows = differences(relations, orders)
    assert max_windows - 0.6 <= windows <= max_windows
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
    """Equal plans lose nothing, as long as every state is inspected."""
    monkeypatch.setattr(JoinStates, "_join", NewestPart.join)
    assert differences("ABC", ("ABC", "ABC"))[:2] == (0, 0)
    monkeypatch.setattr(JoinStates, "holds_old", _old_in_streams_only)
    missing, _, _ = differences("ABC", ("ABC", "ABC"))
    assert missing > 0


def test_an_idle_input_does_not_keep_old_state() -> None:
    cluster = cluster_of("ABC", ("ABC", "BCA"))
    local_cluster = LocalCluster(cluster)
    for relation in "ABC":
        local_cluster.append(relation, 0.0, {"k": 1})
    local_cluster.request(Relocate("ptlb", _SENDER, _RECEIVER, 1000))
    phases: Counter[str] = Counter()
    for second in range(1, 30):
        # C is idle: only heartbeats advance its time.
        local_cluster.append("A", second, {"k": 1})
        local_cluster.append("B", second, {"k": 1})
        local_cluster.append("C", second, None)
        local_cluster.run()
        phases[local_cluster.manager.relocations[1].phase] += 1
    assert phases["done"] >= 29 - 22


@pytest.mark.parametrize("idle", ["A", "C"])
def test_without_heartbeats_it_would_not_end(idle: str) -> None:
    local_cluster = LocalCluster(cluster_of("ABC", ("ABC", "BCA")))
    for relation in "ABC":
        for key in range(10):
            local_cluster.append(relation, 0.0, {"k": key})
    local_cluster.request(Relocate("ptlb", _SENDER, _RECEIVER, 1000))
    for second in range(1, 60):
        for relation in set("ABC") - {idle}:
            local_cluster.append(relation, second, {"k": second})
        local_cluster.run()
    phases = [local_cluster.manager.relocations[1].phase]
    local_cluster.append(idle, 60, None)
    local_cluster.run()
    phases.append(local_cluster.manager.relocations[1].phase)
    assert phases == ["duplicating", "done"]
