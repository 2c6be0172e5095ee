"""The log, the metrics and the traces, made from the same observations."""
