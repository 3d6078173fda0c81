"""`python -m capmodel` is the command line."""

from capmodel.cli import main

main()
