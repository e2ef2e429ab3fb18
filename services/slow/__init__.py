"""Slow decides with authority what Fast may not decide from memory; it fails closed."""
