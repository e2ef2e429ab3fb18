"""Ports on AWS; imported only where the configuration asks for them."""
