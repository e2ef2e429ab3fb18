"""Pure values and rules; never does I/O and never reads a clock."""
