"""The configuration: its schema, how it is read, and one YAML file per recipe."""
