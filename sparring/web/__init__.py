"""Common parts of all HTTP services: keys, limits, an audit log, metrics. They do not depend on the service."""
