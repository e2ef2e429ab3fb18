"""All that Snavio needs from the world, as Protocols."""
