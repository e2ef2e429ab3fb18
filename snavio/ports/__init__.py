"""The interfaces that Snavio needs from storage, queues and other systems, as Protocols."""
