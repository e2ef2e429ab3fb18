"""Fast dispatches from memory alone; when unsure it escalates to Slow and never guesses."""
