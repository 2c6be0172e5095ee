"""The HTTP code that all interfaces of Portolan share: problems, preconditions, preferences."""
