"""Two replicas on three stores, with faults to inject into all of them."""

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
from tests.faults.stores import RestartableStores

__all__ = ["Cluster", "cluster"]

log = logging.getLogger(__name__)

MAX_LOGGED_LINES = 200
"""Last log lines of each replica, shown if a test fails and no error was logged."""

DEADLINE_S = 2.0
"""Deadline of store calls, from which the leases of a killed replica derive."""


@dataclass(frozen=True)
class Cluster:
    """The replicas and stores into which faults are injected.

    Attributes:
        catalogue_url: The catalogue's URL, on the PostgreSQL store.
        stores: The stores; each can be killed or stopped.
        replicas: The two replicas.
        links: The proxies between the first replica and each store; the second connects directly.
    """

    catalogue_url: str
    stores: RestartableStores
    replicas: tuple[Service, Service]
    links: dict[str, Holding]


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    """Start a cluster that keeps every acknowledged write, whichever process is killed."""
    async with AsyncExitStack() as stack:
        directory = Path(tempfile.mkdtemp(prefix="portolan-cluster-"))
        stack.callback(shutil.rmtree, directory)
        stores = RestartableStores(directory)
        stack.callback(stores.end)
        stack.enter_context(stores.running())
        direct_configs = [replace(config, deadline_s=DEADLINE_S) for config in stores.configs()]
        links, proxied_configs = {}, []
        for config in direct_configs:
            links[config.name], proxied_config = await stack.enter_async_context(proxied(config))
            proxied_configs.append(proxied_config)
        urls = {config.name: config.url for config in direct_configs}
        catalogue, coordination = urls["postgres"], urls["redis"]
        replicas = tuple(
            Service.on(configs, catalogue, coordination, relays="here")
            for configs in (direct_configs, proxied_configs)
        )
        second, first = replicas
        for replica in (second, first):  # the first to start creates the catalogue's tables
            await stack.enter_async_context(replica.running())
        try:
            yield Cluster(catalogue, stores, (first, second), links)
        except BaseException:
            for replica in replicas:
                errors = [line for line in replica.output if '"level":"error"' in line]
                log.info(
                    "%s logged %s",
                    replica.data,
                    "".join(errors or replica.output[-MAX_LOGGED_LINES:]),
                )
            raise
