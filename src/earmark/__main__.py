"""`python -m earmark`: the command line."""

from earmark.cli import main

main()
