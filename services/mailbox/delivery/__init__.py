"""The way out: waiting receives, leased bytes, and reasons why there are none."""
