"""How hard hypothesis tries: the same examples each time, or (long form) many new ones.

The usual run is repeatable: pyproject.toml chooses hypothesis's own profile `ci`, which has no
deadlines, since two busy processors are no fault of the code.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "long",
    max_examples=2_000,
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
if os.environ.get("HEADRACE_TEST_LONG"):
    settings.load_profile("long")
