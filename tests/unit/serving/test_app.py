from typing import Any

import pytest

from serving.app import asked_tokens


@pytest.mark.parametrize(
    ("asked", "tokens"),
    [
        ({"prompt": "p"}, 16),
        ({"prompt": "p", "max_tokens": 5}, 5),
        ({"prompt": ["p", "q"], "max_tokens": 5, "n": 3}, 30),
        ({"prompt": [1, 2, 3], "max_tokens": 5}, 5),
        ({"prompt": [[1, 2], [3]], "max_tokens": 5}, 10),
        ({"messages": []}, 100),
        ({"messages": [], "max_tokens": 7}, 7),
        ({"messages": [], "max_tokens": 7, "max_completion_tokens": 9}, 9),
        ({"prompt": "p", "max_tokens": "many"}, 0),
        ({"prompt": "p", "n": [2]}, 0),
    ],
)
def test_the_tokens_of_a_request_are_those_of_all_its_completions(asked: dict[str, Any], tokens: int) -> None:
    assert asked_tokens(asked, limit=100) == tokens
