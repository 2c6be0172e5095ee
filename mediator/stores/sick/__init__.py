"""A store that is stale on purpose, as an oracle for measurements of staleness.

SickStore (Wingerath, Friedrich, Gessert, Ritter: "Who Watches the Watchmen? On the Lack of
Validation in NoSQL Benchmarking", BTW 2015). Tests construct it; no configuration
creates it.
"""

from mediator.stores.sick.replicas import Replicas
from mediator.stores.sick.store import SickStore
from mediator.stores.sick.windows import Constant, PerServer, Uniform, Windows

__all__ = ["Constant", "PerServer", "Replicas", "SickStore", "Uniform", "Windows"]
