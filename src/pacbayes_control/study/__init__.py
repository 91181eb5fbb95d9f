"""Around a run: which environments it fails in, tables of rollouts, sweeps."""
