"""Ports on files of the local file system, for a stack on one machine."""
