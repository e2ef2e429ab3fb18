"""The mailbox's state in memory: topics, leases, readiness and the transitions between them, without any I/O."""
