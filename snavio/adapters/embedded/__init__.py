"""Adapters for one machine without other servers."""
