"""Capabilities for the mailbox: issuing, rights, revocation."""
