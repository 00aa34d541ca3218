"""The experiments of the four papers by their protocols, beside the figures that they print."""
