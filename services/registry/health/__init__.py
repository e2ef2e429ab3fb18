"""Watches over the queues of routes, of every kind, without anything that their consumers have to do.

Never touches a message, and never tells a tenant of another's queue.
"""
