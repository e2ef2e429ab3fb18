"""Alerts: from the events that Relay cuts, by a path of their own, to each tenant's channels and to the operators.

Never behind a stream or a queue, and never nowhere: what no channel took is on the operators' list.
"""
