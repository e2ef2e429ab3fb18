"""The way in: batches of the mesh and messages of tenants, committed together."""
