"""`python -m dumbwaiter`: the command line."""

from dumbwaiter.cli import main

main()
