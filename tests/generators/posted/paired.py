"""A schedule that posts its messages in lists and combines a forward with a backward, in the calling style of
DualPipe.

Two stages a rank, in a V. First all forwards of the first stage, then 1F1B in the second with pairs, then the backwards
of the first. Weight gradients of the last backwards are delayed.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable


class Weights:
    """Delayed weight gradients."""

    enabled = False
    work = []  # noqa: RUF012

    @classmethod
    def put(cls, work):
        cls.work.append(work)


class Paired(nn.Module):
    def __init__(self, stages, group=None):
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.group = group or dist.distributed_c10d._get_default_group()
        self.rank, self.last = self.group.rank(), self.group.rank() == self.group.size() - 1

    def receive(self, chunk, forward):
        """Append a receive to the list, or take what this rank has made itself."""
        if (chunk == 0) == forward and (self.rank == 0):
            return (self.inputs if forward else [None]).pop(0)
        if self.last and (chunk == 1) == forward:
            return self.turned[forward].pop(0)
        made = torch.empty((1,), requires_grad=True)
        peer = self.rank - 1 if (chunk == 0) == forward else self.rank + 1
        self.posts.append(dist.P2POp(dist.irecv, made, dist.get_global_rank(self.group, peer)))
        return made

    def send(self, chunk, forward, tensor):
        if (chunk == 1) == forward and self.rank == 0:
            return
        if self.last and (chunk == 0) == forward:
            self.turned[forward if chunk == 0 else False].append(
                tensor.detach().requires_grad_() if forward else tensor
            )
            return
        peer = self.rank + 1 if (chunk == 0) == forward else self.rank - 1
        self.posts.append(dist.P2POp(dist.isend, tensor, dist.get_global_rank(self.group, peer)))

    def wait(self):
        if self.posts:
            for request in dist.batch_isend_irecv(self.posts):
                request.wait()
            self.posts = []

    def run_forward(self, chunk):
        given = self.receive(chunk, True)
        self.wait()
        made = self.stages[chunk](given)
        self.kept[chunk].append((given, made))
        self.send(chunk, True, made)

    def run_backward(self, chunk):
        grad = self.receive(chunk, False)
        self.wait()
        given, made = self.kept[chunk].pop(0)
        if grad is None:
            made.backward()
        else:
            Variable._execution_engine.run_backward((made,), (grad,), allow_unreachable=True)
        self.send(chunk, False, given.grad)

    def run_both(self):
        given, grad = self.receive(1, True), self.receive(1, False)
        self.wait()
        before, loss = self.kept[1].pop(0)
        kind = type(self.stages[1])
        outputs, _ = kind.overlapped_forward_backward(
            self.stages[1],
            [given],
            None,
            [],
            self.stages[1],
            loss if grad is None else None,
            [loss],
            [grad] if grad else [],
        )
        self.kept[1].append((given, outputs[0]))
        self.send(1, True, outputs[0])
        self.send(1, False, before.grad)

    def step(self, inputs, count):
        self.inputs, self.posts, self.kept = list(inputs.tensor_split(count)), [], ([], [])
        self.turned = {True: [], False: []}
        for _ in range(count):
            self.run_forward(0)
        for _ in range(self.rank + 1):
            self.run_forward(1)
        for _ in range(count - self.rank - 1):
            self.run_both()
        for _ in range(self.rank + 1):
            self.run_backward(1)
        Weights.enabled = True
        for _ in range(count):
            self.run_backward(0)
        self.wait()
        for work in Weights.work:
            work()
