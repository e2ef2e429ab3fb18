"""The steps between the archive and Spark, and between Spark and Registry: verification, an index, proposals."""
