"""Tables that are copied with one column exchanged: Parquet, delimited text and JSON lines."""
