"""Imports vLLM before the tests do."""

import tests.support.quiet_imports  # noqa: F401
