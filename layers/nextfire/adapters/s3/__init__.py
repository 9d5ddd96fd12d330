"""Scripts, logs, results and the audit chain in S3."""
