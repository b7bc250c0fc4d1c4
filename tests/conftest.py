import signal

from hypothesis import settings

settings.register_profile("thanos-peer", deadline=None, max_examples=60)
settings.load_profile("thanos-peer")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored, and so would all children
