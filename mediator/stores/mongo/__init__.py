"""MongoDB, and servers that speak its protocol from version 5 on."""

from mediator.stores.mongo.store import MongoStore

__all__ = ["MongoStore"]
