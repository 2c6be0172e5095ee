"""Transactions over objects of several systems, serializable (docs/transactions.md)."""
