"""Transfers that take longer on some ranks' links: cards, edges, rails, groups of a mesh."""

from functools import partial

from tests.simulator.case import FOUR, MS, Case, case_of, nobody, on_nodes
from tests.simulator.faults import Fault
from tests.simulator.jobs import (
    context_parallel,
    cubes,
    data_parallel,
    experts,
    links,
    rails,
    replicated_pipelines,
)
from tests.simulator.noise import unlike_hosts

LINKS: tuple[Case, ...] = (
    case_of("keys and values, a slow edge", context_parallel.keys_and_values, Fault("link", 6 * MS, (3, 4)),
            "ranks 3 and 4", cause="transfer", noise=unlike_hosts(130)),
    nobody("a card that slows all groups", "exposed_communication slow_link", data_parallel.summed_over_nodes,
            Fault("nic", 6 * MS, tuple(range(8))), noise=unlike_hosts(219)),
    nobody("leaders of nodes, a slow network", "exposed_communication slow_link", data_parallel.led,
            Fault("wire", 7 * MS, (0, 4, 8, 12)), noise=unlike_hosts(304)),
    case_of("a GPU's links are slow in both its groups", links.own_links, Fault("port", 5 * MS, (5,)),
            "with every partner", cause="transfer", left=(Fault("reach", 2 * MS, (5,)),),
            others=(1, 3, 7), noise=unlike_hosts(323)),
    case_of("a ring of nodes, a kernel for both partners", partial(rails.rails, nodes=5, is_grouped=True),
            Fault("card", 6 * MS, (5,)), "messages with every partner", cause="transfer", noise=unlike_hosts(615)),
    case_of("a ring of one host alone, a hot GPU", partial(rails.rails, nodes=5, gpus=1, is_grouped=True,
            is_reduced=False), Fault("throttle", 0, (2,), None, 1.8), "same kernels", noise=unlike_hosts(617)),
    # Of a rank most links are slow: one partner is reached another way.
    case_of("most links of a rank in a woven ring", rails.woven, Fault("card", 8 * MS, (3,)),
            "all-gather with most partners", cause="transfer", noise=unlike_hosts(1104)),
    nobody("the links stall once", "exposed_communication slow_link", links.links,
            Fault("link", 30 * MS, tuple(range(12)), (2,)), is_gained=True),
    case_of("two nodes, one slow card", links.two_nodes, Fault("link", 6 * MS, (2, 6)),
            "all-reduce among ranks 2 and 6"),
    case_of("a slow rail of experts", on_nodes(experts.rails, 2), Fault("link", 5 * MS, (1, 3, 5, 7)),
            "all-to-all among ranks 1, 3, 5 and 7"),
    # What all ranks do beside nothing gains more.
    case_of("a tensor group's links in a cube", cubes.cubed, Fault("link", 4 * MS, (4, 5)),
            "all-reduce among ranks 4 and 5"),
    case_of("one pipeline edge at half rate", replicated_pipelines.edged, Fault("link", 3_200_000, (1, 2)),
            "ranks 1 and 2", cause="transfer"),
    nobody("slow messages between all stages", "slow_link", replicated_pipelines.edged,
            Fault("link", 40 * MS, FOUR), edges=(0, 1, 2), elements=24_000_000, message_ns=266_667, is_gained=True),
    case_of("a tensor group's all-reduces stall once", links.mesh, Fault("link", 9 * MS, (4, 5, 6, 7), (2,)),
            "all-reduce among ranks 4–7", of="tp"),
    case_of("slow links of two ranks of four", links.half_linked, Fault("link", 2 * MS, (2, 3)),
            "all-gather among ranks 2 and 3", ranks=4, shard=2, steps=3),
)  # fmt: skip
