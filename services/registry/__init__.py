"""Registry is the only writer of tenants, services, targets, routes, ACLs and suspensions.

Every change is kept, in order, with its time and its author; nothing is ever written around it.
"""
