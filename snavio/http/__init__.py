"""HTTP with identity: a server in front of an ASGI application, the verified peer of a request, and errors as problem
details.

Never lets a request reach an application before its head was bounded in size and time.
"""
