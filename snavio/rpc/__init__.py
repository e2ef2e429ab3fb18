"""gRPC with identity: what a server checks before it serves a call, and the channels of its clients."""
