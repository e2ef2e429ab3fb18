"""What the mesh tells about itself."""
