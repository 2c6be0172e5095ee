"""Live rebalancing: workers own partition groups of standing queries, and hand them over."""
