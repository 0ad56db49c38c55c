"""Whether nodes can run what a file asks for: facts gathered on each (`gather`), and judged in one place (`checks`)."""
