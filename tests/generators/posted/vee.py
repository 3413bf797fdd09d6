"""A schedule of nodes in a V, with a function for each message and each half of a backward, in the calling style of
Colossal-AI.

Messages are tables of tensors, sends return handles, and `inputs` says which gradients are wanted.
"""

import torch
import torch.distributed as dist


class Vee:
    def __init__(self, stages):
        self.stages, self.rank, self.last = stages, dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
        self.handles, self.kept, self.local = [], ([], []), {"F": [], "B": []}

    def nodes(self, count):
        """Return the order of this rank: forwards, then both halves of the backwards, weights at the end."""
        yield from [("F", 0)] * count + [("F", 1)] * count
        for chunk in (1, 0):
            yield from [("B", chunk)] * count
        for chunk in (1, 0):
            yield from [("W", chunk)] * count

    def peer(self, chunk, ahead):
        """Return the neighbour in the direction of the data, None at the ends of the V and at its turn."""
        other = self.rank + 1 if (chunk == 0) == ahead else self.rank - 1
        return other if 0 <= other < dist.get_world_size() else None

    def received(self, kind, chunk):
        peer = self.peer(chunk, kind == "B")
        if peer is None:
            return {"hidden": self.local[kind].pop(0)} if self.last else {}
        tensor = torch.empty((1,), requires_grad=True)
        dist.irecv(tensor, src=peer).wait()
        return {"hidden": tensor}

    def sent(self, kind, chunk, table):
        peer = self.peer(chunk, kind == "F")
        if peer is not None:
            self.handles += [dist.isend(tensor, dst=peer) for tensor in table.values()]
        elif self.last:
            self.local[kind] += [x.detach().requires_grad_() if kind == "F" else x for x in table.values()]

    def step(self, count):
        grads = ([], [])
        for kind, chunk in self.nodes(count):
            if kind == "F":
                table = self.received("F", chunk)
                made = self.stages[chunk](*table.values())
                self.kept[chunk].append((table, made))
                self.sent("F", chunk, {"hidden": made})
            elif kind == "B":
                table, made = self.kept[chunk][len(grads[chunk])]
                grad = self.received("B", chunk)
                grads[chunk].append([*grad.values()] or [None])
                if table:
                    torch.autograd.backward([made], grads[chunk][-1], inputs=[*table.values()], retain_graph=True)
                    self.sent("B", chunk, {name: tensor.grad for name, tensor in table.items()})
            else:
                (_, made), grad = self.kept[chunk].pop(0), grads[chunk].pop(0)
                torch.autograd.backward([made], grad, inputs=list(self.stages[chunk].parameters()))
        for handle in self.handles:
            handle.wait()
