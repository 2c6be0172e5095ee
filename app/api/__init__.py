"""The data API: a plain ASGI application over the mediator's data plane."""
