"""For all tests."""

from hypothesis import settings

# Timings are never asserted: a busy machine must not turn a test red.
settings.register_profile("nextfire", deadline=None, print_blob=True)
settings.load_profile("nextfire")
