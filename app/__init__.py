"""HTTP, and nothing but HTTP."""
