"""Authentication and authorisation, put together."""
