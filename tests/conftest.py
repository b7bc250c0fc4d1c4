from hypothesis import settings

settings.register_profile("thanos-peer", deadline=None, max_examples=60)
settings.load_profile("thanos-peer")
