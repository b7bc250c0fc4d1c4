"""Paths on the command line."""

from pathlib import Path

import click

# Not checked to be readable: the code that reads a path says in one line what is wrong with it.
PATH = click.Path(path_type=Path, readable=False)
