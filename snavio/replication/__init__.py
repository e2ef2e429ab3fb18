"""Copies of an authority's state, kept fresh by polling: denylist and directory."""
