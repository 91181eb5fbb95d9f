"""A certificate against what happened in deployment."""
