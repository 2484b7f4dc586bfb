"""Property tests are given all the time they need: a busy machine fails nobody's build."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
