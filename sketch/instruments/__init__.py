"""What looks at caching from outside: a simulator, a trace checker, golden vectors."""
