"""The mailbox: every message is delivered at least once, or stays on disk with the reason why not."""
