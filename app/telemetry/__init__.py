"""Subscribers to what happens: the log, the metrics, and the traces."""
