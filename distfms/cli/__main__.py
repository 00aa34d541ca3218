"""``python -m distfms.cli``."""

from distfms.cli import main

main()
