"""Two replicas on three stores of their own, and all that can happen to them."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.faults.holding import Holding, proxied
from tests.faults.service import Service
from tests.faults.stores import OwnStores

__all__ = ["Cluster", "cluster"]

log = logging.getLogger(__name__)

LOGGED = 200
"""The last lines that each replica has logged, shown if a test fails and no error was logged."""

DEADLINE_S = 2.0
"""Of a store's answer: the leases that a killed replica leaves derive from it."""


@dataclass(frozen=True)
class Cluster:
    """Where faults are injected.

    Attributes:
        catalogue_url: The catalogue, on the store that is PostgreSQL.
        stores: The stores, each of which can be killed or stopped.
        replicas: The replicas.
        links: What the first replica reaches each store by; the other one reaches it directly.
    """

    catalogue_url: str
    stores: OwnStores
    replicas: tuple[Service, Service]
    links: dict[str, Holding]


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """Start all of it; it loses nothing that it has acknowledged, whichever process is killed."""
    async with AsyncExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="portolan-cluster-"))
        stack.callback(shutil.rmtree, directory)
        stores = OwnStores(directory)
        stack.callback(stores.end)
        stack.enter_context(stores.running())
        direct = [replace(config, deadline_s=DEADLINE_S) for config in stores.configs()]
        links, through = {}, []
        for config in direct:
            links[config.name], reached = await stack.enter_async_context(proxied(config))
            through.append(reached)
        urls = {config.name: config.url for config in direct}
        catalogue, coordination = urls["postgres"], urls["redis"]
        replicas = tuple(
            Service.on(configs, catalogue, coordination, relays="here")
            for configs in (direct, through)
        )
        second, first = replicas
        for replica in (second, first):  # one makes the catalogue's tables
            await stack.enter_async_context(replica.running())
        try:
            yield Cluster(catalogue, stores, (first, second), links)
        except BaseException:
            for replica in replicas:
                errors = [line for line in replica.output if '"level":"error"' in line]
                log.info("%s said %s", replica.data, "".join(errors or replica.output[-LOGGED:]))
            raise
