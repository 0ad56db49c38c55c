"""How long a request waits for a place to decode in, after `routing.costs`.

An engine that decodes as many requests as its batch has places for, or whose device is full, lets the next wait until
others have ended. What runs there now is taken to be like this request and to end evenly over its life: a crowd of
1.25 times what there is room for has room for the last of it in a quarter of that life.
"""

from math import inf

from routing.compiled import compiled
from routing.costs import Job, Price
from routing.pool import Member
from routing.records import Table


@compiled
def find_room(members: Table[Member], prices: Table[Price], job: Job) -> None:
    """Write for each fit decode replica `seat_s`, until its engine takes the request into its batch, and `room_s`,
    until it would do so with steps that keep the target; `crowd` is what is there then for each that there is room for.
    """
    for place in range(len(members)):
        if members[place].decodes and prices[place].violation < inf:
            _write_room(members[place], prices[place], job)


@compiled
def _write_room(member: Member, price: Price, job: Job) -> None:
    outputs = price.batch + job.outputs
    crowd = max(outputs / member.max_running, price.held)
    price.seat_s = _wait_s(member, price, job, crowd)
    price.crowd = max(crowd, _crowd_of_steps(member, price, job))
    price.room_s = _wait_s(member, price, job, price.crowd)


@compiled
def _wait_s(member: Member, price: Price, job: Job, crowd: float) -> float:
    """Until the crowd is no more than there is room for: a part of how long the request decodes among so many."""
    if crowd <= 1.0:
        return 0.0
    life_s = job.output * (member.step_s + (price.itl_s - member.step_s) / crowd)
    return (crowd - 1.0) * life_s


@compiled
def _crowd_of_steps(member: Member, price: Price, job: Job) -> float:
    """How many times as many requests as may be, for steps to take no longer than they should; 0 where a step of this
    request alone takes longer.
    """
    own_s = job.outputs * (member.step_request_s + member.step_context_s * job.context)
    most_s = job.itl_target_s - member.step_s
    return (price.itl_s - member.step_s) / most_s if most_s > 0.0 and own_s <= most_s else 0.0
