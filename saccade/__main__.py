"""`python -m saccade` is the command `saccade`."""

from saccade.cli import main

main()
