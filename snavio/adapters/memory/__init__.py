"""The mailbox in memory: a store without a disk, and what both of its stores remember."""
