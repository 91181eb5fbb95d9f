"""Trials that people have already: evaluation logs in, choices, comparisons and plans out."""
