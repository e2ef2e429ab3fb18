"""Clients for operators and tenants' principals: directory, keys, certificates, bans, queues."""
