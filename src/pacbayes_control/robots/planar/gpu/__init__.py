"""Rollouts of a robot in the plane on a GPU: their kernel, its compilation, and what feeds it."""
