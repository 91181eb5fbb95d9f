"""The published experiments, one module each."""
