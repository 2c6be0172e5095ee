"""An open connection to Redis, which stores, feed and sketch share; and scripts to call on it."""
