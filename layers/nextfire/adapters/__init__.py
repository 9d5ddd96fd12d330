"""The ports, with AWS behind them. The only home of boto3."""
