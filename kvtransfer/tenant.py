"""Whose blocks these are.

A tenant is a cache salt. The engine's block hash covers the salt, so nobody can ask for a block under another salt;
what is kept here only decides whose blocks make way for whose. The salt itself, which guards the blocks, is never sent
or kept: a short digest names the tenant.
"""

import hashlib

Tenant = bytes
"""Eight bytes, or none for prompts without a salt."""

NO_TENANT: Tenant = b""


def tenant_of(cache_salt: str | None) -> Tenant:
    """The tenant of a request."""
    return hashlib.blake2b(cache_salt.encode(), digest_size=8).digest() if cache_salt else NO_TENANT
