"""The end of a delivery: acknowledgements, returned messages and operators' changes, durable before the answer."""
