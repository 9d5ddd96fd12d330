"""What a worker process has besides the executor: its journal and its protection as an ECS task."""
