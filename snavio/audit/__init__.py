"""What stands between the archive and Spark, and between Spark and Registry: belief, an index, proposals."""
