"""Signer holds and rotates HMAC keys, keeps the CA and issues certificates.

No secret leaves it except to the source it belongs to or to Shield, and none is ever logged.
"""
