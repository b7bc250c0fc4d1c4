"""Other programs, which have to succeed, and say why if they do not."""

import subprocess


def run(*arguments, seconds=120, **options):
    """What a program prints; if it fails, all that it said."""
    command = [*map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds, **options)
    assert done.returncode == 0, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout
