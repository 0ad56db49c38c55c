"""Run hygiene: every process and file of a `baton serve` can be told from all others and is gone after its end."""
