"""The admin API, on a port of its own."""
