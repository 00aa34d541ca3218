"""From any file to partitions of rows."""
