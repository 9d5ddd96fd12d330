"""The domain model of the scheduler. Does not depend on AWS, a clock or the environment."""
