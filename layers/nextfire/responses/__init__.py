"""The responses of the API: one class each, for the server, the client and the OpenAPI document.
`base` explains how a class is written.
"""
