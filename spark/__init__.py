"""Reads the telemetry archive: who took how much of what, who abuses it, and how well the mesh does.

Imports pyspark and itself, so that `spark-submit --py-files` needs nothing else. Never writes into the archive, never
bans anybody: it proposes, and Registry decides.
"""
