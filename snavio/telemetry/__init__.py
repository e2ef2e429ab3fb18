"""Telemetry: metrics, events, the journal of commands, logs, and the archive's files."""
