"""The edge: lets webhooks in as a service of one tenant, and hands their messages to its workers.

Never has rights of its own: whatever it stores or sends, it stores or sends as a service that its tenant registered.
"""
