"""The ports' implementations, one folder per world they stand on."""
