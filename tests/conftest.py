"""What holds for all tests."""

from __future__ import annotations

from hypothesis import settings

# The same examples in every run: what fails here fails for everybody.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
