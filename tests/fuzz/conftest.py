"""The gateway's app is imported before any test of this folder is, without the warnings of what it imports."""

import tests.support.quiet_imports  # noqa: F401
