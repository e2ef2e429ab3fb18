"""Decisions about writes to the directory."""
