"""Ports on Redis; imported only where the configuration names a server."""
