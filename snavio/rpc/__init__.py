"""gRPC with identity: what a server asks of a call before it serves it."""
