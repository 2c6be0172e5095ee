"""The server's sketch in Redis, shared by all replicas."""
