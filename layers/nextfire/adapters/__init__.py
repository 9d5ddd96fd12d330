"""Implementations of the ports on AWS. boto3 may be imported here only."""
