"""Relay takes every service's telemetry, keeps it until it is archived, and says how much of it never arrived."""
