"""The gateway serves tenants their streams over HTTPS. It keeps nothing, so any number of them may run.

`edge` and `pull` are the process of `snavio edge run`, which is another one.

Never decides a right by a rule of its own, and never hands out an envelope that it has not verified.
"""
