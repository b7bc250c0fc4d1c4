"""Decentralized optimization over the Stiefel manifold with non-smooth regularizers (THANOS)."""

__version__ = "0.1.0"
