"""What the lake reads; it owns no table."""
