"""The commands of `portolan`; each is imported only when it is called."""
