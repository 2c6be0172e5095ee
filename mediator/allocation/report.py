"""An allocation as JSON, as text, and as values of the Helm chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any, Final

from mediator.allocation.allocating import Allocated
from mediator.allocation.model import Objective, Workload

__all__ = ["describe", "helm_values", "text"]

_MB_PER_MIB: Final = 1.048576
_LABEL: Final = "portolan.io"


def describe(workload: Workload, allocated: Allocated, objective: Objective) -> dict[str, Any]:
    """Return an allocation as JSON."""
    allocation = allocated.allocation
    return {
        "objective": objective.value,
        "value": allocated.value,
        "bound": allocated.bound,
        "gap": allocated.gap,
        "is_greedy": allocated.is_greedy,
        "solved_s": allocated.solved_s,
        "communication": workload.communication(allocation),
        "price": workload.price(allocation),
        "machines": {
            name: {
                "processes": workload.on(name, allocation),
                "memory_mb": workload.memory(workload.on(name, allocation)),
                "of_memory_mb": machine.memory_mb,
            }
            for name, machine in workload.machines.items()
        },
    }


def text(report: Mapping[str, Any]) -> str:
    """Return a report as lines of text."""
    prefix = "greedy, " if report["is_greedy"] else ""
    summary = (
        f"{report['objective']}: {report['value']:,.10g} ({prefix}gap {report['gap']:.2%},"
        f" {report['solved_s']:.2f} s); traffic {report['communication']:,.10g},"
        f" price {report['price']:,.10g}"
    )
    lines = [summary]
    for name, machine in report["machines"].items():
        processes = ", ".join(machine["processes"]) or "nothing"
        memory = f"{machine['memory_mb']:,.6g} of {machine['of_memory_mb']:,.6g} MB"
        lines.append(f"  {name:20} {memory:>24}  {processes}")
    return "\n".join(lines)


def helm_values(workload: Workload, allocated: Allocated) -> str:
    """Return values of the Helm chart as YAML: memory of pods, and the machines they can run on.

    Machines are selected by a label per part. A pod's limit is the maximum that a process of its
    part needs, so that no pod takes memory reserved for others.
    """
    return "".join(_values(workload, allocated))


def _values(workload: Workload, allocated: Allocated) -> Iterator[str]:
    parts = sorted(
        {process.part for process in workload.processes.values() if process.part is not None}
    )
    for part in parts:
        names = [name for name, process in workload.processes.items() if process.part == part]
        machines = sorted({allocated.allocation[name] for name in names})
        mib = ceil(max(workload.processes[name].memory_mb for name in names) / _MB_PER_MIB)
        yield f"# kubectl label node {' '.join(machines)} {_LABEL}/{part}=true\n"
        yield (
            f"{part}:\n  replicas: {len(names)}\n"
            f'  nodeSelector:\n    {_LABEL}/{part}: "true"\n'
            f"  resources:\n    requests:\n      memory: {mib}Mi\n"
            f"    limits:\n      memory: {mib}Mi\n"
        )
