"""Pure steps from DataFrame to DataFrame. None of them reads, writes, or looks at a clock."""
