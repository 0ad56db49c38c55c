"""How many replicas prefill and how many decode, decided from what workers report. Pure.

A pool is a role, and roles can be lent: every engine can do both, so a replica changes sides in milliseconds, without a
restart. `needs.py` says for how many replicas each role has work, `best_split.py` which ratio suits that best, and
`controller.py` whether it is worth changing anything, whom, and why. Nothing here reads a clock: the simulator runs the
very same objects.
"""
