"""The outside of a service for its operators: metrics and traces."""
