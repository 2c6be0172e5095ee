"""Embedded database servers in one data directory; `fleet` runs all of them for a service."""
