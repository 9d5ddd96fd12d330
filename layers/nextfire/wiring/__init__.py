"""Code that handlers share: connects use cases to adapters; logs and metrics."""
