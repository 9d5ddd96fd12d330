"""Queues in SQS."""
