"""Allocations: the paper's example, others by exhaustive search, and why some are impossible."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mediator.allocation.allocating import Allocated, DoesNotFit, allocate
from mediator.allocation.greedy import greedy
from mediator.allocation.model import Allocation, Objective, Workload
from mediator.allocation.parser import fit_memory, parse_workload
from mediator.allocation.report import describe, helm_values, text
from mediator.base.errors import Invalid

PAPER: dict[str, Any] = {
    "processes": {
        "input1": {"memory_mb": 600},
        "input2": {"memory_mb": 2400},
        "worker": {"memory_mb": 3200},
        "production": {"memory_mb": 500},
    },
    "traffic": [
        {"from": "input1", "to": "worker", "tuples": 200_000},
        {"from": "input2", "to": "worker", "tuples": 1_000_000},
        {"from": "worker", "to": "production", "tuples": 200_000},
    ],
    "machines": {
        "first": {"memory_mb": 6000, "price": 2},
        "second": {"memory_mb": 5000, "price": 3},
    },
    "overheads": {"local": 1, "remote": 3},
}


def with_machines(**memory_mb: float) -> dict[str, Any]:
    return {**PAPER, "machines": {name: {"memory_mb": mb} for name, mb in memory_mb.items()}}


def all_allocations(workload: Workload) -> Iterator[Allocation]:
    for machines in product(workload.machines, repeat=len(workload.processes)):
        allocation = dict(zip(workload.processes, machines, strict=True))
        if fits(workload, allocation):
            yield allocation


def fits(workload: Workload, allocation: Allocation) -> bool:
    return all(
        workload.memory(workload.on(name, allocation)) <= machine.memory_mb
        for name, machine in workload.machines.items()
    )


def allocate_document(document: dict[str, Any], objective: Objective) -> tuple[Workload, Allocated]:
    workload = parse_workload(document)
    return workload, allocate(workload, objective, 30.0)


def test_the_example_of_the_paper() -> None:
    workload, result = allocate_document(PAPER, Objective.COMMUNICATION)
    assert result.value == 2_200_000
    assert result.allocation == {
        "input1": "second", "input2": "first", "worker": "first", "production": "second"
    }  # fmt: skip
    assert not result.is_greedy
    assert result.gap == pytest.approx(0, abs=1e-6)
    values = sorted(
        workload.value(allocation, Objective.COMMUNICATION)
        for allocation in all_allocations(workload)
    )
    assert values == [2.2e6, 3.4e6, 3.4e6, 3.8e6, 3.8e6, 3.8e6, 3.8e6, 4.2e6, 4.2e6]


def test_the_price_of_the_example() -> None:
    assert allocate_document(PAPER, Objective.COST)[1].value == 5
    large = {"first": {"memory_mb": 7000, "price": 2}, "second": {"memory_mb": 5000, "price": 3}}
    workload, result = allocate_document({**PAPER, "machines": large}, Objective.COST)
    assert {*result.allocation.values()} == {"first"}
    assert result.value == 2
    assert workload.communication(result.allocation) == 1_400_000


@pytest.mark.parametrize(
    ("memory_mb", "reason"),
    [
        ({"first": 3000, "second": 9000, "third": 100}, None),
        (
            {"first": 3000, "second": 3000},
            "worker needs 3,200 MB, and the largest machine has 3,000",
        ),
        ({"first": 3300, "second": 3300}, "need 6,700 MB, and all machines together have 6,600 MB"),
        ({"first": 3500, "second": 1700, "third": 1700}, "pieces that do not fit"),
    ],
)
def test_processes_that_do_not_fit_are_explained_with_the_sums(
    memory_mb: dict[str, float], reason: str | None
) -> None:
    workload = parse_workload(with_machines(**memory_mb))
    if reason is None:
        assert fits(workload, allocate(workload, Objective.COMMUNICATION, 30.0).allocation)
        return
    with pytest.raises(DoesNotFit, match=reason):
        allocate(workload, Objective.COMMUNICATION, 30.0)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    number = st.integers(1, 100)
    names = [f"p{n}" for n in range(draw(st.integers(2, 5)))]
    machines = [f"m{n}" for n in range(draw(st.integers(1, 3)))]
    pairs = [(one, other) for one in names for other in names if one != other]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=8))
    links = draw(
        st.lists(st.tuples(st.sampled_from(machines), st.sampled_from(machines)), max_size=4)
    )
    return {
        "processes": {name: {"memory_mb": draw(number)} for name in names},
        "traffic": [{"from": one, "to": other, "tuples": draw(number)} for one, other in edges],
        "machines": {
            name: {"memory_mb": draw(st.integers(50, 300)), "price": draw(number)}
            for name in machines
        },
        "overheads": {
            "links": [{"from": one, "to": other, "overhead": draw(number)} for one, other in links]
        },
    }


@given(documents(), st.sampled_from(Objective))
def test_no_allocation_is_better_than_the_result(
    document: dict[str, Any], objective: Objective
) -> None:
    workload = parse_workload(document)
    values = [workload.value(allocation, objective) for allocation in all_allocations(workload)]
    if not values:
        with pytest.raises(DoesNotFit):
            allocate(workload, objective, 30.0)
        return
    result = allocate(workload, objective, 30.0)
    assert fits(workload, result.allocation)
    assert (
        result.value == workload.value(result.allocation, objective) == pytest.approx(min(values))
    )
    assert result.bound <= result.value * (1 + 1e-6)


@given(documents(), st.sampled_from(Objective))
def test_a_greedy_allocation_fits(document: dict[str, Any], objective: Objective) -> None:
    workload = parse_workload(document)
    allocation = greedy(workload, objective)
    if allocation is not None:
        assert fits(workload, allocation)


def test_without_time_the_greedy_allocation_is_the_answer() -> None:
    names = [f"p{n}" for n in range(40)]
    document = {
        "processes": {name: {"memory_mb": 10} for name in names},
        "traffic": [
            {"from": names[n], "to": names[(n * 7 + k) % 40], "tuples": 1 + (n * k) % 13}
            for n in range(40)
            for k in (1, 3, 5)
            if names[n] != names[(n * 7 + k) % 40]
        ],
        "machines": {f"m{n}": {"memory_mb": 60} for n in range(8)},
    }
    workload = parse_workload(document)
    result = allocate(workload, Objective.COMMUNICATION, 0.001)
    assert result.is_greedy
    assert result.gap > 0
    assert fits(workload, result.allocation)


def test_memory_is_estimated_by_measured_runs() -> None:
    runs = [(1_000.0, 110.0), (2_000.0, 210.0), (3_000.0, 316.0)]
    estimate = fit_memory(runs)
    assert all(estimate.of(tuples) >= memory for tuples, memory in runs)
    assert estimate.of(4_000) == pytest.approx(420, abs=5)
    document = {
        **PAPER,
        "processes": {**PAPER["processes"], "production": {"tuples": 3_000}},
        "measured": [{"tuples": tuples, "memory_mb": memory} for tuples, memory in runs],
    }
    assert parse_workload(document).processes["production"].memory_mb >= 316


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"processes": {}}, "/processes"),
        ({"machines": {}}, "/machines"),
        ({"processes": {"a": {}}}, "/processes/a"),
        ({"processes": {"a": {"memory_mb": 1, "tuples": 1}}}, "/processes/a"),
        ({"processes": {"a": {"tuples": 1}}, "traffic": []}, "/processes/a/tuples"),
        ({"processes": {"a": {"memory_mb": float("nan")}}}, "/processes/a/memory_mb"),
        ({"processes": {"a": {"memory_mb": 1, "part": "x"}}, "traffic": []}, "/processes/a/part"),
        ({"traffic": [{"from": "worker", "to": "x", "tuples": 1}]}, "/traffic/0/to"),
        ({"traffic": [{"from": "worker", "to": "worker", "tuples": 1}]}, "/traffic/0/to"),
        ({"traffic": [{"from": "worker", "to": "input1", "tuples": -1}]}, "/traffic/0/tuples"),
        ({"overheads": {"links": [{"from": "x", "to": "first"}]}}, "/overheads/links/0/from"),
        ({"measured": [{"tuples": 1, "memory_mb": 1}]}, "/measured"),
        ({"measured": [{"tuples": 1, "memory_mb": 1}] * 3}, "/measured"),
        ({"other": 1}, "/other"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_location(changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as error:
        parse_workload({**PAPER, **changes})
    assert pointer in [location.pointer for location in error.value.locations]


def test_a_program_that_is_too_large_is_refused() -> None:
    names = [f"p{n}" for n in range(60)]
    edges = [{"from": one, "to": other, "tuples": 1} for one, other in pairwise(names)]
    document = {
        "processes": {name: {"memory_mb": 1} for name in names},
        "traffic": edges,
        "machines": {f"m{n}": {"memory_mb": 9} for n in range(100)},
    }
    with pytest.raises(Invalid) as error:
        allocate(parse_workload(document), Objective.COMMUNICATION, 1.0)
    assert "200,000" in error.value.locations[0].detail


def test_values_of_the_chart_bind_parts_to_machines() -> None:
    document = {
        "processes": {
            "api-0": {"memory_mb": 500, "part": "api"},
            "api-1": {"memory_mb": 1048, "part": "api"},
            "spark": {"memory_mb": 4000},
        },
        "machines": {"one": {"memory_mb": 1100}, "two": {"memory_mb": 5000}},
    }
    workload, result = allocate_document(document, Objective.COST)
    values = yaml.safe_load(helm_values(workload, result))
    assert values == {
        "api": {
            "replicas": 2,
            "nodeSelector": {"portolan.io/api": "true"},
            "resources": {"requests": {"memory": "1000Mi"}, "limits": {"memory": "1000Mi"}},
        }
    }
    assert "kubectl label node" in helm_values(workload, result)


def test_a_report_names_machines_with_what_they_hold() -> None:
    workload, result = allocate_document(PAPER, Objective.COMMUNICATION)
    report = describe(workload, result, Objective.COMMUNICATION)
    assert report["machines"]["first"] == {
        "processes": ["input2", "worker"], "memory_mb": 5600, "of_memory_mb": 6000
    }  # fmt: skip
    lines = text(report)
    assert "2,200,000" in lines
    assert "input2, worker" in lines
