"""`python -m longrein` is the command line."""

from longrein.cli import main

main()
