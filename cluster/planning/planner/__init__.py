"""The planner: which ratio of prefill to decode serves a trace best, found by simulating it. Pure.

`question.py` is what is asked, `trial.py` simulates one answer, `demand.py` guesses where to begin, `search.py` climbs
from there and confirms what it found, `fewest.py` asks how few replicas keep the targets.
"""
