"""Access control: tenants, grants and the decision; independent of HTTP."""
