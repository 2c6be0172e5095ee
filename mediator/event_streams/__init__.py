"""Event streams: tuples that applications send, in the order of their arrival."""
