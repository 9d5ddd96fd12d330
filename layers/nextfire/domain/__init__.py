"""The words and rules of the scheduler. Knows no AWS, no clock and no environment."""
