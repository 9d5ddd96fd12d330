"""Implementations of the ports: on AWS, on SQLite and files, and on the operating system. boto3 may
be imported here only.
"""
