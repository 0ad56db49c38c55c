"""Rates as the configuration has them, for the router."""

from dataclasses import fields

from configs.schema import RatesConfig
from routing.profile import Profile


def router_profile(rates: RatesConfig) -> Profile:
    """All values are set: as `configs.profiles` makes them."""
    return Profile(**{field.name: getattr(rates, field.name) for field in fields(Profile)})
