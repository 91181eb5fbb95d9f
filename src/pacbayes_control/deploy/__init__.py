"""After learning: the deployed policy, and the monitor of what happens to it."""
