"""Groups of cores, as Linux describes them in folders that these tests make up."""

import pytest

from placement.runtime import processors

HYBRID = {"cpu_core/cpus": "0-3\n", "cpu_atom/cpus": "4-9\n"}
TWO_NODES = {
    "system/node/node0/cpulist": "0-1,4-5\n",
    "system/node/node1/cpulist": "2-3,6-7\n",
    "system/node/node2/cpulist": "\n",  # a node of memory alone
}


def each_core(file, *values):
    return {f"system/cpu/cpu{core}/{file}": f"{value}\n" for core, value in enumerate(values)}


@pytest.mark.parametrize(
    ("files", "cores", "groups"),
    [
        ({}, [0, 1, 2, 3], {}),
        ({"system/node/node0/cpulist": "0-3\n"}, [0, 1, 2, 3], {}),
        (TWO_NODES, range(8), {"NODE_0": [0, 1, 4, 5], "NODE_1": [2, 3, 6, 7]}),
        (TWO_NODES, [1, 2, 7], {"NODE_0": [1], "NODE_1": [2, 7]}),
        (TWO_NODES, [2, 3, 6], {}),
        (HYBRID, range(10), {"PERFORMANCE": [0, 1, 2, 3], "EFFICIENT": [4, 5, 6, 7, 8, 9]}),
        (HYBRID, [4, 5], {}),
        (
            TWO_NODES | {"cpu_core/cpus": "0-1\n", "cpu_atom/cpus": "2-7\n"},
            [0, 1, 2, 3],
            {
                "NODE_0": [0, 1],
                "NODE_1": [2, 3],
                "PERFORMANCE": [0, 1],
                "EFFICIENT": [2, 3],
            },
        ),
        (
            each_core("cpu_capacity", 446, 446, 1024, 1024),
            range(4),
            {"EFFICIENT": [0, 1], "PERFORMANCE": [2, 3]},
        ),
        (
            each_core("cpufreq/cpuinfo_max_freq", 5_200_000, 4_800_000, 3_300_000),
            range(3),
            {"PERFORMANCE": [0, 1], "EFFICIENT": [2]},
        ),
        # Equal capacities say nothing; neither do the rates of cores of one kind.
        (
            each_core("cpu_capacity", 1024, 1024)
            | each_core("cpufreq/cpuinfo_max_freq", 5_200_000, 4_800_000),
            range(2),
            {},
        ),
    ],
)
def test_groups_follow_the_description_of_the_system(files, cores, groups, tmp_path):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = processors.find_core_groups(list(cores), tmp_path)
    assert found == groups
    assert list(found) == list(groups)


def test_groups_of_this_machine_contain_allowed_cores_only():
    allowed = processors.list_allowed_cores()
    for cores in processors.find_core_groups(allowed).values():
        assert set(cores) < set(allowed)
