"""Keeps cached copies within their bound: the sketch, asked before reads and told of writes."""
