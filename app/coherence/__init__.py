"""Keeps cached copies within their bound: the sketch grants TTLs to reads, and announces writes."""
