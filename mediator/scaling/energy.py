"""Energy and delay of an operation, by powers that the operator states.

See docs/papers/wattdb.md, section 2.

Nothing here is measured with a meter. Between idle and peak, power is taken to grow with
utilisation; of several replicas it adds up. The energy-delay product (EDP) of an operation is its
energy times its delay: what saves energy by being slow gains nothing.

What another size would cost is a model: the same operations, spread over more or fewer equal
parts, each of which serves all that it has in turns. There an operation takes ``1 / (1 - used)`` of
what it takes alone (M/M/1, processor sharing).
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
    "energy_report",
    "least",
    "operation_cost",
]


class StatedPowers(BaseModel):
    """What the operator states of a system as a whole, or of one replica.

    Attributes:
        idle_w: Watts that it draws when it does nothing.
        peak_w: Watts at full utilisation.
        edp_goal_js: The EDP that an operation should not exceed, in joule-seconds; None: no goal.
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
        """Return the watts at a utilisation; more than all of it draws no more."""
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
    """The load of a system or of the service, and how it copes.

    Attributes:
        used: Utilisation at its present size.
        rate: Operations/s, of all parts together.
        size: The present size, in parts of which the powers are stated.
        most: The highest utilisation that has to be reckoned with; None: not known yet.
    """

    used: float
    rate: float
    delay_s: float
    size: float
    most: float | None


def operation_cost(stated: StatedPowers, load: SystemLoad, size: float) -> OperationCost | None:
    """Return what an operation would take at a size; None: it could not serve the load."""
    used = load.used * load.size / size
    energy_j = size * stated.power_w(used) / load.rate
    if size == load.size:
        return OperationCost(energy_j, load.delay_s)
    if max(used, load.used) >= 1:
        return None
    return OperationCost(energy_j, load.delay_s * (1 - load.used) / (1 - used))


def least(
    stated: StatedPowers, load: SystemLoad, sizes: Sequence[float]
) -> tuple[float, OperationCost] | None:
    """Return the size that keeps the band with the least EDP, and its cost; None: no size does.

    The smallest size may be used less than the band requires.
    """
    if load.most is None:
        return None
    kept = [
        size
        for size in sizes
        if load.most * load.size / size <= BAND.high
        and (load.used * load.size / size >= BAND.low or size == min(sizes))
    ]
    costs = [(size, operation_cost(stated, load, size)) for size in kept]
    able = [(size, cost) for size, cost in costs if cost is not None]
    return min(able, key=lambda each: (each[1].edp_js, each[0]), default=None)


def energy_report(
    stated: StatedPowers, load: SystemLoad | None, sizes: Mapping[float, str]
) -> dict[str, Any]:
    """Return the energy of the load as JSON, with the reason as text.

    Without a load (None) it is not known, or nothing. `sizes` are the names of possible sizes.
    """
    report: dict[str, Any] = {"stated": stated.model_dump()}
    now = None if load is None else operation_cost(stated, load, load.size)
    if load is None or now is None:
        return {**report, "why": "It has no known load, so no operation has an energy."}
    best = least(stated, load, tuple(sizes))
    return {
        **report,
        "power_w": load.size * stated.power_w(load.used),
        "energy_j": now.energy_j,
        "delay_s": now.delay_s,
        "edp_js": now.edp_js,
        "goal_met": None if stated.edp_goal_js is None else now.edp_js <= stated.edp_goal_js,
        "least": best
        and {"size": best[0], "edp_js": best[1].edp_js, "relative": best[1].relative_to(now)},
        "why": " ".join(_sentences(stated, load, now, best, sizes)),
    }


def _sentences(
    stated: StatedPowers,
    load: SystemLoad,
    now: OperationCost,
    best: tuple[float, OperationCost] | None,
    sizes: Mapping[float, str],
) -> list[str]:
    took = f"{now.energy_j:.3g} J and {now.delay_s:.3g} s: {now.edp_js:.3g} J·s"
    sentences = [f"By the stated powers an operation takes {took}."]
    if stated.edp_goal_js is not None:
        side = "within" if now.edp_js <= stated.edp_goal_js else "above"
        sentences.append(f"That is {side} the goal of {stated.edp_goal_js:.3g} J·s.")
    if load.most is None:
        sentences.append("Half an hour has to be seen before sizes are compared.")
    elif best is None:
        sentences.append("No size that was compared would stay within the band.")
    elif best[0] == load.size:
        sentences.append("No other size that stays within the band has less.")
    else:
        share = best[1].relative_to(now)
        sentences.append(f"{sizes[best[0]]} would stay within the band with {share:.2f} of that.")
    return sentences
