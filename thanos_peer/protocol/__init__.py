"""The conversation between peers: which message may come when. No I/O, no clock, no algorithm."""
