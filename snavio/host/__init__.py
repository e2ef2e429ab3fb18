"""The parts that every service of the mesh is made of, whatever it decides."""
