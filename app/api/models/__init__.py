"""Pydantic models of the data API: bodies, parameters and answers; OpenAPI is made from them."""
