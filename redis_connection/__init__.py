"""A pipelined connection to Redis and its scripts, for stores, feed and sketch."""
