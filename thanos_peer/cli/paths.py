"""Paths on the command line."""

from pathlib import Path

import click

# Its reader says what is wrong with it, in one line.
PATH = click.Path(path_type=Path, readable=False)
