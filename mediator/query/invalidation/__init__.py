"""Which results of queries a write may change: registered queries, and an index over them."""
