"""Who may start, who waits for it and who is told to come back: decisions in `queue`, performed by `door`."""
