"""All peers of a network on this machine: their processes, where these are forked from, and faults on purpose."""
