"""PostgreSQL as a store: typed tables, one round trip for a write with its outbox entry."""

from mediator.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
