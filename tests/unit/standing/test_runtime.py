"""The reference runtime: the paper's example, windows, late tuples, state."""

from __future__ import annotations

from typing import Any

import pytest

from mediator.standing.planning import Plan, PlanOptions, make_plans
from mediator.standing.runtime import Runtime
from mediator.standing.state import StreamTuple
from tests.unit.standing.papers_queries import EXAMPLE_1, document, workload

Q1 = {"S1": "a", "S2": "ab", "S3": "b"}


def tuple_of(stream: str, time_s: float, **values: Any) -> StreamTuple:
    return StreamTuple(stream, time_s, values)


def plan_of(queries: dict[str, Any], **options: Any) -> Plan:
    (plan,) = make_plans(workload(queries), "shared", PlanOptions(**options))
    return plan


def runtime(plan: Plan, retention_s: float = 10.0, lateness_s: float = 0.0) -> Runtime:
    streams = plan.workload.streams
    new_runtime = Runtime(streams, plan.workload.parallelism, retention_s, lateness_s)
    new_runtime.activate(plan)
    return new_runtime


def with_window(window_s: float, **members: Any) -> dict[str, Any]:
    queries = document(Q1, **members)
    queries["queries"]["q1"]["window_s"] = window_s
    return queries


def test_a_result_appears_when_its_last_tuple_arrives() -> None:
    engine = runtime(plan_of(with_window(6)))
    assert not engine.feed([tuple_of("S1", 10, a=1)])
    assert not engine.feed([tuple_of("S3", 12, b=2)])
    (result,) = engine.feed([tuple_of("S2", 16, a=1, b=2)])
    assert result.to_json() == {
        "query": "q1",
        "time_s": 16,
        "tuples": {"S1": {"a": 1}, "S2": {"a": 1, "b": 2}, "S3": {"b": 2}},
    }


@pytest.mark.parametrize("materialise", [False, True])
def test_tuples_that_are_further_apart_than_the_window_make_no_result(materialise: bool) -> None:
    engine = runtime(plan_of(with_window(5), materialise=materialise))
    tuples = [tuple_of("S1", 10, a=1), tuple_of("S3", 12, b=2), tuple_of("S2", 16, a=1, b=2)]
    assert not engine.feed(tuples)


def test_a_window_reaches_as_far_as_the_difference_of_times_is_rounded() -> None:
    # In floating point 12.8 - 9.4 is above 3.4, and 12.8 - 3.4 is not above 9.4.
    queries = document({"R": "a", "S": "a"})
    queries["queries"]["q1"]["window_s"] = 9.4
    engine = runtime(plan_of(queries))
    engine.feed([tuple_of("R", 3.4, a=1)])
    assert engine.feed([tuple_of("S", 12.8, a=1)])


def test_restored_tuples_make_no_results_and_are_joined_with_later_ones() -> None:
    plan = plan_of(EXAMPLE_1)
    engine = Runtime(plan.workload.streams, 1, 10.0, 2.0)
    tuples = [tuple_of("R", 2.5, a=1), tuple_of("S", 2.5, a=1, b=2), tuple_of("T", 2.5, b=2, c=3)]
    assert list(engine.restore(tuples, 5)) == [None] * 3
    engine.activate(plan)
    assert engine.watermark_s == 3
    assert not engine.feed([tuple_of("U", 2.9, c=3)])
    assert engine.late == 1
    assert [result.query for result in engine.feed([tuple_of("U", 3, c=3)])] == ["q2"]


def test_tuples_of_one_batch_meet_in_the_order_of_the_feed() -> None:
    engine = runtime(plan_of(with_window(6)), lateness_s=10)
    tuples = [tuple_of("S2", 16, a=1, b=2), tuple_of("S3", 12, b=2), tuple_of("S1", 10, a=1)]
    assert len(engine.feed(tuples)) == 1


@pytest.mark.parametrize(("one", "other"), [(None, None), (1, True), (0, False), ("1", 1)])
def test_values_that_are_not_equal_in_json_do_not_join(one: Any, other: Any) -> None:
    engine = runtime(plan_of(document({"R": "a", "S": "a"})))
    assert not engine.feed([tuple_of("R", 1, a=one), tuple_of("S", 1, a=other)])


def test_numbers_join_whatever_their_notation() -> None:
    engine = runtime(plan_of(document({"R": "a", "S": "a"}, parallelism=4)))
    assert engine.feed([tuple_of("R", 1, a=1), tuple_of("S", 1, a=1.0)])


def test_a_tuple_from_before_the_watermark_is_dropped_and_counted() -> None:
    engine = runtime(plan_of(document({"R": "a", "S": "a"})), lateness_s=2)
    engine.feed([tuple_of("R", 10, a=1)])
    assert engine.watermark_s == 8
    assert not engine.feed([tuple_of("S", 7.9, a=1)])
    assert engine.late == 1
    # The watermark moves with the next batch, so no batch makes its own tuples late.
    assert not engine.feed([tuple_of("R", 1_000, a=1), tuple_of("S", 8, a=2)])
    assert engine.late == 1


def test_state_is_bounded_by_the_window() -> None:
    engine = runtime(plan_of(EXAMPLE_1), retention_s=1)
    for second in range(100):
        values = {"a": second, "b": second, "c": second}
        engine.feed([tuple_of(name, second, **values) for name in "RSTU"])
    assert sum(engine.sizes().values()) <= 5 * 3


def test_a_tuple_is_sent_to_the_task_of_its_partners_or_to_all_tasks() -> None:
    queries = document({"R": "b", "S": "bc", "T": "c"}, parallelism=5)
    engine = runtime(plan_of(queries, materialise=False))
    engine.feed([tuple_of("S", 1, b=1, c=1), tuple_of("R", 1, b=1), tuple_of("T", 1, c=1)])
    sends = {order.start: count for order, count in engine.sent.items() if len(order.steps) == 1}
    # S is partitioned by the attribute of one of the two, and the other one does not know it.
    assert {sends["R"], sends["T"]} == {1, 5}
    assert engine.stored.total() == 3


def test_of_several_layouts_the_one_with_a_known_attribute_is_probed() -> None:
    queries = document({"R": "b", "S": "bc", "T": "c"}, parallelism=5)
    engine = runtime(plan_of(queries, materialise=False, replicas=True))
    # In the next epoch S is kept by one attribute; in the first one by both.
    engine.feed([tuple_of("S", 1, b=1, c=1)])
    engine.activate(plan_of(queries, materialise=False))
    assert engine.stored.total() == 2
    engine.feed([tuple_of("R", 1, b=1), tuple_of("T", 1, c=1)])
    sends = {order.start: count for order, count in engine.sent.items() if len(order.steps) == 1}
    # One of the two knows the attribute of both epochs; the other one that of the first.
    assert {sends["R"], sends["T"]} == {1, 1 + 5}


def test_an_epoch_that_the_window_does_not_reach_gets_no_tuples() -> None:
    plan = plan_of(document({"R": "a", "S": "a"}, parallelism=5))
    engine = Runtime(plan.workload.streams, 5, 10.0, 100.0)
    # There is no plan yet, so this epoch has its tuples in one task.
    engine.feed([tuple_of("S", 1, a=1)])
    engine.activate(plan)
    assert not engine.feed([tuple_of("R", 50, a=1)])
    assert engine.sent.total() == 1
    assert len(engine.feed([tuple_of("R", 2, a=1)])) == 1
    assert engine.sent.total() == 1 + 2


def test_the_edge_of_a_window_reaches_an_earlier_epoch() -> None:
    queries = document({"R": "a", "S": "a"})
    queries["queries"]["q1"]["window_s"] = 2
    engine = runtime(plan_of(queries), lateness_s=10)
    engine.feed([tuple_of("S", 1.7, a=1)])
    engine.activate(plan_of(queries))
    # 3.7 - 2 is rounded to more than 1.7, and 3.7 - 1.7 to no more than 2.
    assert len(engine.feed([tuple_of("R", 3.7, a=1)])) == 1


def test_a_query_with_a_longer_window_than_tuples_are_kept_is_refused() -> None:
    with pytest.raises(ValueError, match="window longer"):
        runtime(plan_of(with_window(6)), retention_s=5)


def test_a_query_that_is_added_sees_earlier_tuples() -> None:
    plan = plan_of(with_window(6))
    engine = Runtime(plan.workload.streams, 1, 10.0)
    engine.feed([tuple_of("S1", 10, a=1), tuple_of("S3", 12, b=2)])
    engine.activate(plan)
    assert len(engine.feed([tuple_of("S2", 16, a=1, b=2)])) == 1


def test_intermediate_results_that_no_query_needs_are_dropped() -> None:
    engine = runtime(plan_of(EXAMPLE_1))
    engine.feed([tuple_of("S", 1, a=1, b=2), tuple_of("T", 1, b=2, c=3)])
    assert {str(layout): count for layout, count in engine.sizes().items()}["S⋈T"] == 1
    engine.activate(plan_of(EXAMPLE_1, materialise=False))
    assert "S⋈T" not in {str(layout) for layout in engine.sizes()}


@pytest.mark.parametrize("former", [False, True], ids=["new", "kept"])
def test_an_intermediate_result_has_tuples_from_before_its_probes_once(former: bool) -> None:
    engine = runtime(plan_of(EXAMPLE_1, materialise=former))
    engine.feed([tuple_of("S", 1, a=1, b=2), tuple_of("T", 1, b=2, c=3)])
    engine.activate(plan_of(EXAMPLE_1))
    assert any("S⋈T" in str(layout) for layout in engine.sizes())
    assert [result.query for result in engine.feed([tuple_of("R", 1, a=1)])] == ["q1"]


def test_an_intermediate_result_that_is_probed_again_is_computed_again() -> None:
    engine = runtime(plan_of(EXAMPLE_1))
    engine.feed([tuple_of("S", 1, a=1, b=2), tuple_of("T", 1, b=2, c=3)])
    engine.activate(plan_of(EXAMPLE_1, materialise=False))
    engine.activate(plan_of(EXAMPLE_1))
    assert [result.query for result in engine.feed([tuple_of("R", 1, a=1)])] == ["q1"]
