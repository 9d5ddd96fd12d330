"""What several handlers share: putting use cases on their adapters, and telling what happened."""
