"""The end of stored messages: by age and count, in the store's own time."""
