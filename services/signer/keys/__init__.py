"""HMAC key sets and Ed25519 scopes: rotation, rollout, use, expiry, signatures."""
