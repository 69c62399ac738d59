"""What all tests share."""

from hypothesis import settings

# How long an example takes says nothing where other work runs beside the tests.
settings.register_profile("longrein", deadline=None)
settings.load_profile("longrein")
