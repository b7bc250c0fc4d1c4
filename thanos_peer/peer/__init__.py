"""One peer as a process: it feeds a session, and owns the clock, signals, logging and status."""
