"""Adapters that forget everything: for tests of the rules above them, never for a deployment."""
