"""Signed documents: manifests, the keys that verify them, publishing and reading snapshots."""
