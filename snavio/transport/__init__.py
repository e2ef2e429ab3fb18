"""mTLS gRPC: servers, channels, identity, authorisation, batch streams."""
