"""A real browser against a real broker, with everything else out of reach."""
