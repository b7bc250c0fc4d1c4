"""Peers as processes: the only room with asyncio, ZeroMQ, clocks, signals and logging."""
