"""Thin jobs: read, chain pure steps, write. `python -m spark.jobs.<name> --help` tells each one's options."""
