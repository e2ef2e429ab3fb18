"""Snapshots of the directory, for those who write them and for those who start from them: one set of rules for both.

Never lets bytes be parsed that were not verified, and never turns a bad snapshot into anything but a reason.
"""
