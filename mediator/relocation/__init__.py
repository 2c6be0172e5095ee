"""Live rebalancing: workers own partition groups of standing queries and transfer them."""
