"""HTTP requests to addresses that somebody else chose: webhooks, forward auth, test deliveries.

The address that is dialled is the address that was checked, on every connection. Never follows a redirect unless the
policy says so, never waits without a deadline, and never reads a body to its end on the word of the other side.
"""
