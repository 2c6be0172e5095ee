"""Pydantic models of the data API's bodies, parameters and answers; the source of OpenAPI."""
