"""The simulator: a whole cluster in virtual time, with the production router, ledger and index. Pure.

Replays a trace (`trace.py`) through gateways (`gateway.py`), whose router decides as in production, and workers
(`worker.py`), whose steps last as long as a `StepTime` says (`step_time.py`). `simulation.py` puts them together;
`outcome.py` is what comes out. Nothing here reads a clock or draws a random number that was not passed in, so the same
trace, settings and seed give the same outcome to the last bit.
"""
