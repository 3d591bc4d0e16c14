"""What libraries say while a command runs."""

import subprocess
import sys
from importlib.util import find_spec

import pytest


@pytest.mark.skipif(not find_spec("bitsandbytes"), reason="peft imports it where it is installed")
def test_a_library_that_lacks_an_optional_part_says_nothing() -> None:
    code = "from sparring.runtime.logs import quiet_logs; quiet_logs(); import bitsandbytes"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
