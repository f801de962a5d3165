"""The benchmark suite: whole crawls against other ways of doing them, the request budget, and memory."""
