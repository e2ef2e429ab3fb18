"""The data pipeline on Spark: reads the archive, finds unfair and abusive sources, proposes bans.

Empty until there is an archive to read. Imports pyspark and itself, never the library or a service.
"""
