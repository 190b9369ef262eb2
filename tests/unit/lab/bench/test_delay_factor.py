"""The benchmark of least delay's constants: its halves share no cell, and the constants are what the policy uses."""

from global_scheduler.core.policies import least_delay
from lab.bench.delay_factor import HALVES, VARIANTS, half
from lab.reproduction.beyond_trial import UNEQUAL, cells


def test_the_halves_have_all_cells_with_several_workers_and_each_workload() -> None:
    chosen, held_out = map(half, HALVES)
    assert {*chosen, *held_out} == {cell for cell in cells() if cell.degree > 1}
    assert len(chosen) == len(held_out) == 9
    assert {cell.case for cell in chosen} == {cell.case for cell in held_out}
    assert UNEQUAL in chosen


def test_variants_change_constants_that_the_policy_has() -> None:
    for constants in VARIANTS.values():
        for name, value in constants.items():
            assert getattr(least_delay, name) != value
