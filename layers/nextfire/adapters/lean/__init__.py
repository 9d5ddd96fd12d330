"""DynamoDB and SQS by their JSON protocols, for the few calls that are made for every run.

boto3 takes a second to import and seven times the CPU per call. The clients here have the methods,
requests and responses of boto3's clients; their errors are those of `adapters/aws_errors.py`.
"""
