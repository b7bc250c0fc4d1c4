"""How often an engine starts a peer again.

A peer that was killed must come back, however often; one whose file is wrong would never stop. Engines of
containers cannot tell the two apart by the exit code, so they get a number that a sound peer does not reach.
"""

MOST_RESTARTS = 50
# Window in which an engine counts restarts. An engine without one counts all until the user starts the peer.
RESTART_WINDOW = "6h"
# Exit codes of errors that a restart does not mend, for engines that look at exit codes.
LASTING = "2 3 4 5 8"
