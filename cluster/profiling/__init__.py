"""Measures how fast an engine is, for a profile file: `baton profile CONFIG`. Starts no Ray.

`schedule` decides what is measured, `bench` measures it on a running engine, `fit` makes rates of it; `rig` starts the
engine as a worker does, with two stores around it; `session` goes through all of it under a deadline.
"""
