"""A store that is inconsistent on purpose, to test those who measure inconsistency.

SickStore (Wingerath, Friedrich, Gessert, Ritter: "Who Watches the Watchmen? On the Lack of
Validation in NoSQL Benchmarking", BTW 2015). It is made by whoever tests with it; no configuration
leads to it.
"""

from mediator.stores.sick.replicas import Replicas
from mediator.stores.sick.store import SickStore
from mediator.stores.sick.windows import Constant, PerServer, Uniform, Windows

__all__ = ["Constant", "PerServer", "Replicas", "SickStore", "Uniform", "Windows"]
