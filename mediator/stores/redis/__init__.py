"""The store on Redis (6.2 or later) and Valkey."""

from mediator.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
