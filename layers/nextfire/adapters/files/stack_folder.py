"""Names in the folder of an embedded stack. Small: the command imports it before all else."""

DATA = "embedded"
"""Name of that folder in the folder of the local stack."""
DATABASE = "nextfire.db"
SCRIPTS, OUTPUTS, SECRETS = "scripts", "outputs", "secrets"
UPLOAD_KEY = "upload-key"
"""File of the secret that signs the URLs of uploads."""
