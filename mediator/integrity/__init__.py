"""Whether what systems hold is what was written through Portolan."""
