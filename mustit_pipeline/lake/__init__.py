"""The catalogue and every change as Parquet, a folder for each day in Seoul, on a path or on S3."""
