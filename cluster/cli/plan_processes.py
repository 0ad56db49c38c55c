"""Trials of a plan in as many processes as there are cores."""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context

from cluster.planning.planner.question import Question
from cluster.planning.planner.trial import Ask, Trial, Try, run_trial
from cluster.planning.warm_up import warm_up


@contextmanager
def processes(question: Question, done: Callable[[Trial], None]) -> Iterator[Try]:
    """Tries, until the block ends; `done` hears of each trial in the order of asking.

    The processes are forks, after what is compiled has been loaded: they begin at once.
    """
    warm_up()
    with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as pool:

        def attempt(asks: Sequence[Ask]) -> list[Trial]:
            trials = []
            for trial in pool.map(partial(_run, question), asks):
                done(trial)
                trials.append(trial)
            return trials

        yield attempt


def _run(question: Question, ask: Ask) -> Trial:
    return run_trial(question, ask, random.Random(question.seed))
