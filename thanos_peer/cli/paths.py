"""Paths on the command line."""

from pathlib import Path

import click

PATH = click.Path(path_type=Path, readable=False)  # its reader says what is wrong with it, in one line
