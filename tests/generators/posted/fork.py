"""1F1B with `set_input_tensor`, a step function for each direction, and batched exchanges, as in forks of
Megatron-LM."""

import torch


def exchange(send, to, receive, source):
    """Post a send and a receive, as far as there are such neighbours, in one batch; return what is received."""
    posts, made = [], None
    if to is not None and send is not None:
        posts.append(torch.distributed.P2POp(torch.distributed.isend, send, to))
    if receive and source is not None:
        made = torch.empty((1,), requires_grad=True)
        posts.append(torch.distributed.P2POp(torch.distributed.irecv, made, source))
    if posts:
        for request in torch.distributed.batch_isend_irecv(posts):
            request.wait()
        torch.cuda.synchronize()
    return made


def forward_step(model, given):
    model.set_input_tensor([given])
    return model()


def backward_step(given, made, grad):
    if given is not None:
        given.retain_grad()
    torch.autograd.backward(made, grad_tensors=grad)
    return None if given is None else given.grad


def forward_backward(model, count):
    here, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    before, after = here - 1 if here else None, here + 1 if here + 1 < ranks else None
    warm, kept = min(ranks - 1 - here, count), []
    for _ in range(warm):
        given = exchange(None, None, True, before)
        kept.append((given, forward_step(model, given)))
        exchange(kept[-1][1], after, False, None)
    given = exchange(None, None, warm < count, before)
    for i in range(count - warm):
        made = forward_step(model, given)
        kept.append((given, made))
        grad = exchange(made, after, True, after)
        kind = backward_step(*kept.pop(0), grad)
        given = exchange(kind, before, i + 1 < count - warm, before)
    for _ in range(warm):
        grad = exchange(None, None, True, after)
        exchange(backward_step(*kept.pop(0), grad), before, False, None)
