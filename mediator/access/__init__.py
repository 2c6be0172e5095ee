"""Who may do what: tenants, grants and the decision; knows no HTTP."""
