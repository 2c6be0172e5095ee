"""Standing queries: joins of streams that are answered tuple by tuple, planned together."""
