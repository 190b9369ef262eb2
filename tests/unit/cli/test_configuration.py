"""The settings that `fairlead simulate` and `fairlead tune` recommend are settings that the services take."""

from cli.configuration import Configuration


def test_policies_of_the_simulator_alone_are_not_recommended_to_services() -> None:
    assert Configuration("lpm", "preble").settings("none") == [
        "workers do not offer the policy lpm: only the simulator has it",
        "the scheduler does not offer the policy preble: only the simulator has it",
    ]


def test_served_policies_are_set_by_flag_or_by_variable() -> None:
    assert Configuration("vtc", "least-loaded").settings("none") == [
        "worker: --policy vtc   or   FAIRLEAD_WORKER_POLICY=vtc",
        "scheduler: --policy least-loaded   or   FAIRLEAD_SCHEDULER_POLICY=least-loaded",
    ]
