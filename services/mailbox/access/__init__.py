"""Access of callers to topics: capabilities, their roots and their quotas."""
