"""Systems: register, describe, amend, examine and unregister them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import Field

from app.admin.api.responses import Control, Document, Name
from app.http.framework import SmallBodies
from app.settings.main import SystemSettings
from mediator.control.port import SystemRegistration, SystemUse

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class NewSystem(SystemSettings):
    """A system to be registered."""

    metrics: dict[str, Figure] = Field(
        default_factory=dict, description="Metrics that the operator states, e.g. write_latency."
    )

    def registration(self) -> SystemRegistration:
        base = SystemSettings(**self.model_dump(exclude={"metrics"})).registration()
        return SystemRegistration(base.config, base.declared, self.metrics)


class Amendment(Document):
    """New statements of the operator on a system."""

    metrics: dict[str, Figure | None] | None = Field(
        None, description="Metrics that replace measured ones; null returns to these."
    )
    declared: list[str] | None = Field(
        None, description="Capabilities that can be neither probed nor observed."
    )
    use: SystemUse | None = Field(
        None, description="draining: nothing else is placed there; suspended: it is not called."
    )


@router.get("/systems")
async def list_systems(control: Control) -> dict[str, Any]:
    """Describe all systems in the order of their registration."""
    return {"items": await control.systems()}


@router.post("/systems", status_code=201)
async def register_system(control: Control, system: NewSystem) -> dict[str, Any]:
    """Register a system: it is opened, probed, observed and calibrated before it is stored."""
    return await control.register(system.registration())


@router.get("/systems/{name}")
async def get_system(control: Control, name: Name) -> dict[str, Any]:
    """Describe a system: capabilities with their proof, metrics, state."""
    return await control.system(name)


@router.patch("/systems/{name}")
async def amend_system(control: Control, name: Name, amendment: Amendment) -> dict[str, Any]:
    """Change the operator's statements on a system, and score placements again."""
    metrics, declared = amendment.metrics, amendment.declared
    return await control.amend(name, metrics=metrics, declared=declared, use=amendment.use)


@router.get("/systems/{name}/moves")
async def list_moves(control: Control, name: Name) -> dict[str, Any]:
    """List the nodes on a system, and where they would be placed if the system were drained."""
    return {"items": await control.moves_off(name)}


@router.post("/systems/{name}/calibration")
async def calibrate_system(control: Control, name: Name) -> dict[str, Any]:
    """Probe and calibrate a system again."""
    return await control.calibrate(name)


@router.delete("/systems/{name}", status_code=204)
async def forget_system(control: Control, name: Name) -> None:
    """Unregister a system; refused (409) while it holds a fragment of a class."""
    await control.unregister(name)
