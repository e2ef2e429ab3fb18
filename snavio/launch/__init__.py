"""One installation on this machine: its state folder, its processes, its demo tenant.

Never imports a service: each is a process of its own.
"""
