"""The language of the HTTP edge: a Hookaidofile is read, checked, formatted, compared and compiled into frozen values.

Never opens a file, a socket or the environment by itself: text, variables and files are arguments.
"""
