"""The way of a batch over one hop."""
