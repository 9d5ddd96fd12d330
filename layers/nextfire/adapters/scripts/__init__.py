"""Running scripts in processes of their own, confined."""
