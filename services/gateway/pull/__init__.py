"""The Pull API: workers fetch the messages of routes over HTTP, under the mailbox's own rules of leases."""
