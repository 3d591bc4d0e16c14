from typing import Any

import pytest
from cachetools import LRUCache

from sparring.serving.cache import CachedAnswer, answer_from, cache_key

GREEDY = {"model": "m", "prompt": "p", "temperature": 0}


def test_only_what_is_answered_alike_each_time_has_a_key() -> None:
    assert cache_key("/v1/completions", GREEDY)
    assert cache_key("/v1/completions", {"model": "m", "prompt": "p", "seed": 0})
    assert cache_key("/v1/completions", {"model": "m", "prompt": "p"}) is None
    assert cache_key("/v1/completions", {"model": "m", "prompt": "p", "temperature": 0.5}) is None


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ({"user": "bob"}, True),
        ({"max_tokens": 3}, False),
        ({"stream": True}, False),
        ({"prompt": "q"}, False),
    ],
)
def test_requests_that_may_be_answered_otherwise_have_other_keys(change: dict[str, Any], alike: bool) -> None:
    assert (cache_key("/a", {**GREEDY, **change}) == cache_key("/a", GREEDY)) is alike


def test_the_order_of_fields_does_not_matter_and_the_route_does() -> None:
    turned = dict(reversed(GREEDY.items()))
    assert cache_key("/a", GREEDY) == cache_key("/a", turned) != cache_key("/b", GREEDY)


class Service:
    def __init__(self, parts: list[bytes], status: int = 200) -> None:
        self.asked, self._parts, self._status = 0, parts, status

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        await send({"type": "http.response.start", "status": self._status, "headers": [(b"a", b"b")]})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def asked(cache: Any, key: str | None, service: Service) -> tuple[int, bytes, bytes]:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    await answer_from(cache, key, service, {}, lambda: None, send)  # pyright: ignore[reportArgumentType]
    headers = dict(said[0]["headers"])
    assert headers[b"a"] == b"b"
    return said[0]["status"], b"".join(m["body"] for m in said[1:]), headers[b"x-cache"]


@pytest.mark.asyncio
async def test_an_equal_request_gets_the_same_bytes_without_asking_the_model() -> None:
    service, cache = Service([b"one ", b"two"]), LRUCache(10_000, getsizeof=len)
    assert await asked(cache, "k", service) == (200, b"one two", b"miss")
    assert await asked(cache, "k", service) == (200, b"one two", b"hit")
    assert await asked(cache, "other", service) == (200, b"one two", b"miss")
    assert service.asked == 2


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("key", "service", "size"),
    [
        (None, Service([b"x"]), 10_000),
        ("k", Service([b"x"], status=400), 10_000),
        ("k", Service([b'data: {"error": {}}\n\n']), 10_000),
        ("k", Service([b"x" * 2000]), 1000),
        ("k", Service([b"x"]), 1),
    ],
    ids=["no key", "refused", "broke off", "larger than the cache", "no cache"],
)
async def test_what_is_not_kept_is_asked_again(key: str | None, service: Service, size: int) -> None:
    cache: LRUCache[str, CachedAnswer] = LRUCache(size, getsizeof=len)
    first = await asked(cache, key, service)
    assert await asked(cache, key, service) == first
    assert service.asked == 2 and not cache


@pytest.mark.asyncio
async def test_the_cache_does_not_grow_beyond_its_size() -> None:
    cache: LRUCache[str, CachedAnswer] = LRUCache(10_000, getsizeof=len)
    for number in range(100):
        await asked(cache, str(number), Service([b"x" * 500]))
    assert 0 < cache.currsize <= 10_000 and "99" in cache and "0" not in cache


@pytest.mark.asyncio
async def test_the_answer_to_who_has_hung_up_is_not_kept() -> None:
    cache: dict[str, CachedAnswer] = {}

    async def vllm(scope: Any, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "http.disconnect"
        await Service([b"null"])(scope, receive, send)

    async def hung_up() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None: ...

    await answer_from(cache, "k", vllm, {}, hung_up, send)
    assert not cache
