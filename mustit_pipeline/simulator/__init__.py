"""The marketplace and the product server as real HTTP servers with switchable faults."""
