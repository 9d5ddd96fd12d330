"""Ports: the interfaces through which use cases reach stores, queues and processes. Each docstring
is the contract of every adapter and fake; the contract tests check it.

Every method can raise `UnavailableError`: the service rejected the request or did not answer. The
request may or may not have taken effect; repeating it is safe.
"""
