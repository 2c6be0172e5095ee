"""Stores: one small port, one package for each kind of database."""
