"""Event streams: tuples sent by applications, in order of arrival."""
