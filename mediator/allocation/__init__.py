"""Which machine each process runs on: least traffic between them, or least price."""
