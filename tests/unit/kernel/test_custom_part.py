"""A room above brings its own state and its own kind of operation; the kernel carries them without knowing them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from lakebed.errors import Invalid
from lakebed.kernel import KERNEL_PARTS, Committed, Decision, Operation, Put, Registry, View
from tests.logs import REGISTRY, file_store, open_log, replayed, state_bytes
from tests.together import together


class Deposit(Operation, tag="deposit"):
    account: str
    amount: int


class Balances:
    """Immutable."""

    def __init__(self, amounts: dict[str, int]) -> None:
        self.amounts = amounts

    @property
    def weight_bytes(self) -> int:
        return sum(len(name) + 24 for name in self.amounts)

    def dump(self) -> Iterator[bytes]:
        for pair in sorted(self.amounts.items()):
            yield msgspec.json.encode(pair)


class BalancesDraft:
    def __init__(self, base: Balances) -> None:
        self.amounts = dict(base.amounts)

    def apply(self, operation: Deposit, version: int) -> None:
        after = self.amounts.get(operation.account, 0) + operation.amount
        if after < 0:
            raise Invalid(f"{operation.account} has too little", "Deposit first")
        self.amounts[operation.account] = after

    def apply_run(self, run: Sequence[tuple[Deposit, int]]) -> None:
        for operation, version in run:
            self.apply(operation, version)

    def finish(self) -> None:
        if sum(self.amounts.values()) > 1000:
            raise Invalid("the bank is full", "Withdraw first")

    def freeze(self) -> Balances:
        return Balances(self.amounts)


class BalancesPart:
    name = "balances"
    operations: tuple[type[Operation], ...] = (Deposit,)

    def empty(self) -> Balances:
        return Balances({})

    def draft(self, base: Balances) -> BalancesDraft:
        return BalancesDraft(base)

    def load(self, lines: Iterable[bytes]) -> Balances:
        return Balances(dict(msgspec.json.decode(line, type=tuple[str, int]) for line in lines))


BANK = Registry([*KERNEL_PARTS, BalancesPart()])


def deposit(account: str, amount: int):
    def decide(view: View) -> Decision[int]:
        return Decision(
            [Deposit(account=account, amount=amount)], view.part("balances").amounts.get(account, 0) + amount
        )

    return decide


async def test_custom_operations_are_committed_replayed_and_checkpointed(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path), registry=BANK)
    for number in range(30):
        result = await log.commit(deposit("a", 3), txn_id=f"t{number}")
    assert isinstance(result, Committed)
    assert result.answer == 90
    await log.checkpoint()
    await log.commit(deposit("b", 1), txn_id="last")
    await log.close()
    again = await open_log(file_store(tmp_path), registry=BANK, create=None)
    assert again.current.part("balances").amounts == {"a": 90, "b": 1}
    assert state_bytes(again.current) == state_bytes(await replayed(file_store(tmp_path), BANK))
    await again.close()


async def test_part_that_refuses_spoils_only_its_own_transaction(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path), registry=BANK)
    async with together() as go:
        good = go(log.commit(deposit("a", 500), txn_id="1"))
        overdrawn = go(log.commit(deposit("b", -1), txn_id="2"))
        full = go(log.commit(deposit("c", 600), txn_id="3"))
        fine = go(log.commit(deposit("d", 500), txn_id="4"))
    assert isinstance(good.result(), Committed)
    assert isinstance(fine.result(), Committed)
    assert isinstance(overdrawn.exception(), Invalid)
    assert isinstance(full.exception(), Invalid)
    assert log.current.part("balances").amounts == {"a": 500, "d": 500}
    await log.close()


async def test_unregistered_operation_is_refused(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path))
    with pytest.raises(Invalid, match="deposit"):
        await log.commit(lambda _: Decision([Deposit(account="a", amount=1)], None), txn_id="1")
    assert isinstance(await log.commit(lambda _: Decision([Put.of("k", 1)], None), txn_id="2"), Committed)
    await log.close()


async def test_log_with_operations_from_the_future_is_refused_not_misread(tmp_path: Path) -> None:
    log = await open_log(file_store(tmp_path), registry=BANK)
    await log.commit(deposit("a", 1), txn_id="1")
    await log.close()
    with pytest.raises(Invalid, match="deposit"):
        await open_log(file_store(tmp_path), registry=REGISTRY)


def test_two_parts_of_one_name_are_refused() -> None:
    with pytest.raises(Invalid, match="share a name"):
        Registry([*KERNEL_PARTS, BalancesPart(), BalancesPart()])
