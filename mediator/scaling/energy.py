"""Energy and delay of an operation, from power figures stated by the operator.

See docs/papers/wattdb.md, section 2.

Nothing is metered. Between idle and peak, power is assumed to grow with utilisation; the powers of
replicas add up. The energy-delay product (EDP) of an operation is its energy times its delay:
saving energy by being slow gains nothing.

The costs at another size are modelled: the same operations are spread over more or fewer equal
parts, each with processor sharing. An operation then takes ``1 / (1 - used)`` times its time alone
(M/M/1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mediator.scaling.model import BAND

__all__ = [
    "Energy",
    "OperationCost",
    "StatedPowers",
    "SystemLoad",
    "best_size",
    "energy_report",
    "operation_cost",
]


class StatedPowers(BaseModel):
    """Power figures stated for an entire system, or for one replica.

    Attributes:
        idle_w: Watts when idle.
        peak_w: Watts at full utilisation.
        edp_goal_js: The maximum EDP of an operation, in joule-seconds; None: no goal.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    idle_w: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    peak_w: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    edp_goal_js: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None

    @model_validator(mode="after")
    def _peak_is_highest(self) -> Self:
        if self.idle_w > self.peak_w:
            raise ValueError("idle_w is at most peak_w")
        return self

    def power_w(self, used: float) -> float:
        """Return the watts at a utilisation; overload draws no more than full load."""
        return self.idle_w + (self.peak_w - self.idle_w) * min(used, 1.0)


class Energy(BaseModel):
    """The setting `PORTOLAN_ENERGY`: powers of a replica of the service, and of systems."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    service: StatedPowers | None = None
    systems: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")], StatedPowers] = {}


class OperationCost(NamedTuple):
    energy_j: float
    delay_s: float

    @property
    def edp_js(self) -> float:
        """Its energy-delay product, in joule-seconds."""
        return self.energy_j * self.delay_s

    def relative_to(self, baseline: OperationCost) -> float:
        """Return the EDP as a multiple of a baseline's."""
        return self.edp_js / baseline.edp_js


class SystemLoad(NamedTuple):
    """The load of a system or of the service, with its delay.

    Attributes:
        used: Utilisation at its current size.
        rate: Total operations/s of all parts.
        size: The current size, in parts for which the powers are stated.
        peak: The highest utilisation to expect; None: not known yet.
    """

    used: float
    rate: float
    delay_s: float
    size: float
    peak: float | None


def operation_cost(powers: StatedPowers, load: SystemLoad, size: float) -> OperationCost | None:
    """Return the cost of an operation at a size; None: that size could not serve the load."""
    used = load.used * load.size / size
    energy_j = size * powers.power_w(used) / load.rate
    if size == load.size:
        return OperationCost(energy_j, load.delay_s)
    if max(used, load.used) >= 1:
        return None
    return OperationCost(energy_j, load.delay_s * (1 - load.used) / (1 - used))


def best_size(
    powers: StatedPowers, load: SystemLoad, sizes: Sequence[float]
) -> tuple[float, OperationCost] | None:
    """Return the size within the band with the lowest EDP, and its cost; None: no such size.

    The smallest size may be utilised below the band.
    """
    if load.peak is None:
        return None
    sizes_in_band = [
        size
        for size in sizes
        if load.peak * load.size / size <= BAND.high
        and (load.used * load.size / size >= BAND.low or size == min(sizes))
    ]
    costs = [(size, operation_cost(powers, load, size)) for size in sizes_in_band]
    feasible = [(size, cost) for size, cost in costs if cost is not None]
    return min(feasible, key=lambda item: (item[1].edp_js, item[0]), default=None)


def energy_report(
    powers: StatedPowers, load: SystemLoad | None, sizes: Mapping[float, str]
) -> dict[str, Any]:
    """Return the energy of the load as JSON, with the reason as text.

    A load of None is unknown or zero. `sizes` are the names of possible sizes.
    """
    report: dict[str, Any] = {"stated": powers.model_dump()}
    current = None if load is None else operation_cost(powers, load, load.size)
    if load is None or current is None:
        return {**report, "why": "It has no known load, so no operation has an energy."}
    best = best_size(powers, load, tuple(sizes))
    return {
        **report,
        "power_w": load.size * powers.power_w(load.used),
        "energy_j": current.energy_j,
        "delay_s": current.delay_s,
        "edp_js": current.edp_js,
        "goal_met": None if powers.edp_goal_js is None else current.edp_js <= powers.edp_goal_js,
        "least": best
        and {"size": best[0], "edp_js": best[1].edp_js, "relative": best[1].relative_to(current)},
        "why": " ".join(_sentences(powers, load, current, best, sizes)),
    }


def _sentences(
    powers: StatedPowers,
    load: SystemLoad,
    current: OperationCost,
    best: tuple[float, OperationCost] | None,
    sizes: Mapping[float, str],
) -> list[str]:
    cost_text = f"{current.energy_j:.3g} J and {current.delay_s:.3g} s: {current.edp_js:.3g} J·s"
    sentences = [f"By the stated powers an operation takes {cost_text}."]
    if powers.edp_goal_js is not None:
        relation = "within" if current.edp_js <= powers.edp_goal_js else "above"
        sentences.append(f"That is {relation} the goal of {powers.edp_goal_js:.3g} J·s.")
    if load.peak is None:
        sentences.append("Half an hour has to be seen before sizes are compared.")
    elif best is None:
        sentences.append("No size that was compared would stay within the band.")
    elif best[0] == load.size:
        sentences.append("No other size that stays within the band has less.")
    else:
        share = best[1].relative_to(current)
        sentences.append(f"{sizes[best[0]]} would stay within the band with {share:.2f} of that.")
    return sentences
