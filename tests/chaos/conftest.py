from tests.integration.conftest import drive, environment, session_drive  # noqa: F401 - fixtures
