"""Answers from the directory: changes, history, preflight."""
