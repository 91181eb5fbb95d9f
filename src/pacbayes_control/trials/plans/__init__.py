"""How many trials are needed, before any and after some, and in which order to carry them out."""
