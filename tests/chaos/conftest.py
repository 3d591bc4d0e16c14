from tests.integration.conftest import drive, environment  # noqa: F401 - fixtures
