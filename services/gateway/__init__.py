"""The gateway: the HTTPS edge of the mesh. It keeps nothing, so any number of them may run.

Never decides a right by a rule of its own, and never hands out an envelope that it has not verified.
"""
