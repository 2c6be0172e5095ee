"""The OpenAPI document of the routes that are plain ASGI."""
