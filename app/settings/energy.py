"""What the operator states of powers: the value of the setting `PORTOLAN_ENERGY`."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mediator.scaling.energy import Energy, Stated

__all__ = ["EnergySettings", "PowerSettings"]


class PowerSettings(BaseModel):
    """Powers of a system, or of one replica of the service, as the operator states them."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    idle_w: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    peak_w: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
    edp_goal_js: Annotated[float | None, Field(gt=0, allow_inf_nan=False)] = None

    @model_validator(mode="after")
    def _peak_is_highest(self) -> PowerSettings:
        if self.idle_w > self.peak_w:
            raise ValueError("idle_w is at most peak_w")
        return self

    def stated(self) -> Stated:
        """Return them as scaling advice takes them."""
        return Stated(self.idle_w, self.peak_w, self.edp_goal_js)


class EnergySettings(BaseModel):
    """The value of `PORTOLAN_ENERGY`."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    service: PowerSettings | None = None
    systems: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")], PowerSettings] = Field(
        default_factory=dict
    )

    def stated(self) -> Energy:
        """Return all of it as scaling advice takes it."""
        service = None if self.service is None else self.service.stated()
        return Energy(service, {name: each.stated() for name, each in self.systems.items()})
