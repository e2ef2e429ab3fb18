"""Operators' view of topics: listings, changes, readings and metrics."""
