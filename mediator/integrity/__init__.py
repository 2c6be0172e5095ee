"""Checks whether systems hold exactly the data written through Portolan."""
