"""Lean clients of DynamoDB and SQS, for the few calls that are made for every run.

boto3 takes a second to import and seven times the CPU per call. These clients speak the services'
JSON protocols, and have the methods, requests and responses of boto3's clients. Their errors are
those of `adapters/aws/errors.py`.
"""
