"""Clusters of standing queries: declare, describe, rebalance and drop them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field

from app.admin.api.responses import Document, DryRun, Name, component
from app.http.framework import SmallBodies
from mediator.base.errors import Invalid, Location
from mediator.base.offload import offload
from mediator.relocation.administration import ClusterAdministration
from mediator.relocation.cluster import MAX_PARTITIONS, MAX_WORKERS, Cluster, Declared
from mediator.relocation.messages import Relocate, Strategy

__all__ = ["router"]

router = APIRouter(route_class=SmallBodies)

Clusters = Annotated[
    ClusterAdministration, component("clusters", "There is no coordination Redis.")
]


class ClusterDocument(Document):
    """A cluster as it is declared."""

    queries: dict[str, Any] = Field(description="Streams and queries, as in a file of them.")
    workers: int = Field(2, ge=1, le=MAX_WORKERS)
    partitions: int = Field(64, ge=1, le=MAX_PARTITIONS)
    lateness_s: float = Field(0.0, ge=0, le=86_400, allow_inf_nan=False)
    adaptive: bool = Field(True, description="Whether workers change plans as rates change.")


class RelocationDocument(Document):
    """A relocation; the manager chooses what is left out."""

    strategy: Strategy = "auto"
    sender: str = Field("", max_length=64)
    receiver: str = Field("", max_length=64)
    amount: int = Field(0, ge=0, le=2**53, description="Rows; 0: half of the difference.")


@router.get("/clusters")
async def list_clusters(clusters: Clusters) -> dict[str, Any]:
    """List the names of clusters."""
    return {"items": await clusters.names()}


@router.put("/clusters/{cluster}", status_code=201)
async def declare_cluster(
    clusters: Clusters,
    cluster: Name,
    document: ClusterDocument,
    response: Response,
    dry_run: DryRun = False,
) -> dict[str, Any]:
    """Declare a cluster, whose participants `portolan cluster work` runs.

    Queries that no attribute divides are refused (409, `not-co-partitioned`): a partition of them
    cannot be moved. With `dry_run` only the attributes that divide them are returned.
    """
    declaration = Declared.even(**document.model_dump())
    configuration = await offload(True, _configuration, declaration)
    if dry_run:
        response.status_code = 200
    else:
        await clusters.declare(cluster, declaration)
    layout = configuration.layout
    attributes = {name: attribute.name for name, attribute in layout.attributes.items()}
    return {"workers": layout.workers, "attributes": attributes, "dry_run": dry_run}


@router.get("/clusters/{cluster}")
async def show_cluster(clusters: Clusters, cluster: Name) -> dict[str, Any]:
    """Show relocations with their phase, the latest first, and what each worker holds."""
    return await clusters.report(cluster)


@router.delete("/clusters/{cluster}", status_code=204)
async def drop_cluster(clusters: Clusters, cluster: Name) -> None:
    """Remove a cluster with its logs and results; participants that still run end."""
    await clusters.drop(cluster)


@router.post("/clusters/{cluster}/relocations", status_code=202)
async def relocate(
    clusters: Clusters, cluster: Name, document: RelocationDocument
) -> dict[str, Any]:
    """Ask the manager to move partition groups between workers; the cluster shows the progress."""
    await clusters.relocate(cluster, Relocate(**document.model_dump()))
    return document.model_dump()


@router.delete("/clusters/{cluster}/relocations/{relocation}", status_code=202)
async def cancel_relocation(
    clusters: Clusters, cluster: Name, relocation: Annotated[int, Path(ge=1, le=2**53)]
) -> dict[str, Any]:
    """Cancel a relocation, unless it is past its point of no return."""
    await clusters.cancel(cluster, relocation)
    return {"id": relocation}


def _configuration(declaration: Declared) -> Cluster:
    """Return the declared cluster; mistakes have their locations in the body."""
    try:
        return declaration.cluster()
    except Invalid as error:
        locations = [
            Location(f"/queries{location.pointer}", location.detail) for location in error.locations
        ]
        raise Invalid(error.detail, locations=locations) from None
