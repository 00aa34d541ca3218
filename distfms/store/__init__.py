"""Where things are kept: places by path or URL, values by key, numbered records."""
