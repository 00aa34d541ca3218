"""One benchmark for all four questions: ours by its defaults beside what else a user could take."""
