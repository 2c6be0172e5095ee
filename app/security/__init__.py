"""Who sends a request, whether there is room for it, and what it may do, on both ports."""
