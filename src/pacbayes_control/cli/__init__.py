"""The command `pbc`.

Each module holds a few commands. Libraries are imported inside them: `pbc --help` should not
wait for a simulator.
"""
