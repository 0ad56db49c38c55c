"""The vLLM side of the KV store: moves blocks between an engine's device and the node's arena.

`connector` adapts vLLM's interface; `scheduler` and `worker` are its two sides, in two processes; `plan`, `layout` and
`support` decide and know neither vLLM nor torch.
"""
