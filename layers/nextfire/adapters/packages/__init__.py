"""Installing the packages that scripts declare."""
