import asyncio
from collections.abc import Collection

import pytest

from sparring.serving.model_cache import ModelCache

pytestmark = pytest.mark.asyncio


class Book:
    """Records when it was loaded and closed."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.dead, self._log = name, False, log
        log.append(f"load {name}")

    async def close(self) -> None:
        self._log.append(f"close {self.name}")


@pytest.fixture
def log() -> list[str]:
    return []


def model_cache(log: list[str], at_once: int = 2, idle_s: float = 1000.0, broken: Collection[str] = ()):
    async def start(name: str) -> Book:
        await asyncio.sleep(0)
        if name in broken:
            log.append(f"fail {name}")
            raise ValueError(f"no room for {name}")
        return Book(name, log)

    return ModelCache(start, at_once=at_once, idle_s=idle_s)


async def ask(models: ModelCache[Book], name: str) -> str:
    async with models.use(name) as book:
        await asyncio.sleep(0)
        return book.name


async def test_many_first_requests_load_a_model_once_and_all_are_answered(log: list[str]) -> None:
    async with model_cache(log) as models:
        assert await asyncio.gather(*(ask(models, "a") for _ in range(20))) == ["a"] * 20
        assert log == ["load a"]
    assert log == ["load a", "close a"]


async def test_the_longest_unused_makes_room(log: list[str]) -> None:
    async with model_cache(log, at_once=2) as models:
        for name in ("a", "b", "a", "c"):
            await ask(models, name)
        assert log == ["load a", "load b", "close b", "load c"]
        assert "a" in models and "b" not in models


async def test_a_model_in_use_is_not_put_away_and_the_other_waits(log: list[str]) -> None:
    async with model_cache(log, at_once=1) as models:
        async with models.use("a"):
            other = asyncio.create_task(ask(models, "b"))
            await asyncio.sleep(0.02)
            assert log == ["load a"] and not other.done()
        assert await other == "b"
        assert log == ["load a", "close a", "load b"]


async def test_users_of_a_loaded_model_do_not_overtake_who_waits_for_another(log: list[str]) -> None:
    answered: list[str] = []
    async with model_cache(log, at_once=1) as models:

        async def request(name: str, after: int) -> None:
            for _ in range(after):
                await asyncio.sleep(0)
            async with models.use(name):
                for _ in range(5):  # so that the model is always in use
                    await asyncio.sleep(0)
            answered.append(name)

        await asyncio.gather(request("a", 0), request("b", 6), *(request("a", n) for n in range(7, 60)))
    assert answered.index("b") < 20, answered


async def test_what_nobody_asks_for_is_put_away_and_loaded_again_when_asked(log: list[str]) -> None:
    async with model_cache(log, idle_s=0.01) as models:
        async with models.use("busy"):
            await ask(models, "a")
            async with asyncio.timeout(5):
                while "a" in models:
                    await asyncio.sleep(0.005)
            assert "busy" in models
        await ask(models, "a")
    assert log.count("load a") == log.count("close a") == 2 and log.count("load busy") == 1


async def test_a_failed_load_is_said_to_all_who_waited_and_tried_again_by_the_next(log: list[str]) -> None:
    broken = {"a"}
    async with model_cache(log, broken=broken) as models:
        said = await asyncio.gather(*(ask(models, "a") for _ in range(3)), return_exceptions=True)
        assert [str(error) for error in said] == ["no room for a"] * 3 and log == ["fail a"]
        broken.clear()
        assert await ask(models, "a") == "a"


async def test_a_client_that_leaves_during_the_load_leaves_the_model_to_the_next(log: list[str]) -> None:
    async with model_cache(log) as models:
        gone = asyncio.create_task(ask(models, "a"))
        await asyncio.sleep(0)
        gone.cancel()
        assert await ask(models, "a") == "a"
        assert log == ["load a"] and gone.cancelled()


async def test_nothing_is_loaded_before_what_makes_room_is_gone_though_its_client_leaves(
    log: list[str],
) -> None:
    async with model_cache(log, at_once=1) as models:
        async with models.use("a") as book:
            may_go, close = asyncio.Event(), book.close

            async def slowly() -> None:
                await may_go.wait()
                await close()

            book.close = slowly
        leaves = asyncio.create_task(ask(models, "b"))
        await asyncio.sleep(0.01)
        leaves.cancel()
        stays = asyncio.create_task(ask(models, "c"))
        await asyncio.sleep(0.01)
        assert log == ["load a"]
        may_go.set()
        assert await stays == "c" and (await asyncio.gather(leaves, return_exceptions=True))[0] != "b"
        assert log == ["load a", "close a", "load c"]


async def test_a_load_that_nobody_waits_for_any_more_does_not_keep_others_out(log: list[str]) -> None:
    async with model_cache(log, at_once=1) as models:
        gone = asyncio.create_task(ask(models, "a"))
        await asyncio.sleep(0)
        gone.cancel()
        async with asyncio.timeout(5):
            assert await ask(models, "b") == "b"
        assert log == ["load a", "close a", "load b"]


async def test_a_dead_model_is_loaded_anew_while_others_still_hold_it(log: list[str]) -> None:
    async with model_cache(log) as models, models.use("a") as first:
        first.dead = True
        await ask(models, "a")  # fails with the dead one, and finds it out
        async with models.use("a") as second:
            assert second is not first and not second.dead
    assert log == ["load a", "close a", "load a", "close a"]


async def test_a_model_that_died_while_nobody_used_it_is_given_to_nobody(log: list[str]) -> None:
    async with model_cache(log, at_once=1) as models:
        async with models.use("a") as first:
            pass
        first.dead = True
        async with models.use("a") as second:
            assert second is not first and not second.dead
    assert log == ["load a", "close a", "load a", "close a"]


async def test_a_model_that_cannot_be_put_away_keeps_no_other_from_it(log: list[str], monkeypatch, caplog):
    async with model_cache(log, idle_s=0.01) as models:
        async with models.use("a") as book:

            async def refuse() -> None:
                raise OSError("it is stuck")

            monkeypatch.setattr(book, "close", refuse)
        async with asyncio.timeout(5):
            while "a" in models:
                await asyncio.sleep(0.005)
            await ask(models, "b")
            while "close b" not in log:
                await asyncio.sleep(0.005)
    assert log == ["load a", "load b", "close b"] and "it is stuck" in caplog.text
