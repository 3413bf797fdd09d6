"""A replacement for the file of the same name in DeepSpeed, for machines without DeepSpeed: its classes, and 1F1B."""

from ..utils import call_to_str


class PipeInstruction:
    def __init__(self, **kwargs):
        self.kwargs = kwargs
        for key, value in kwargs.items():
            setattr(self, key, value)

    def __repr__(self):
        return call_to_str(type(self).__name__, **self.kwargs)


class BufferOpInstruction(PipeInstruction):
    def __init__(self, buffer_id, **kwargs):
        super().__init__(buffer_id=buffer_id, **kwargs)


class LoadMicroBatch(BufferOpInstruction): ...


class ForwardPass(BufferOpInstruction): ...


class BackwardPass(BufferOpInstruction): ...


class SendActivation(BufferOpInstruction): ...


class RecvActivation(BufferOpInstruction): ...


class SendGrad(BufferOpInstruction): ...


class RecvGrad(BufferOpInstruction): ...


class ReduceTiedGrads(PipeInstruction): ...


class ReduceGrads(PipeInstruction): ...


class OptimizerStep(PipeInstruction): ...


class PipeSchedule:
    def __init__(self, micro_batches, stages, stage_id):
        self.micro_batches, self.stages, self.stage_id = micro_batches, stages, stage_id


class TrainSchedule(PipeSchedule):
    def num_pipe_buffers(self):
        return min(self.stages - self.stage_id, self.micro_batches)

    def steps(self):
        warmup = min(self.stages - 1 - self.stage_id, self.micro_batches)
        for i in range(self.micro_batches + warmup):
            if i < self.micro_batches:
                yield self.forward(i % self.num_pipe_buffers())
            if i >= warmup:
                yield self.backward((i - warmup) % self.num_pipe_buffers())
        yield [ReduceTiedGrads(), ReduceGrads(), OptimizerStep()]

    def forward(self, buffer):
        first, last = self.stage_id == 0, self.stage_id == self.stages - 1
        if not first:
            yield RecvActivation(buffer)
        if first or last:
            yield LoadMicroBatch(buffer)
        yield ForwardPass(buffer)
        if not last:
            yield SendActivation(buffer)

    def backward(self, buffer):
        if self.stage_id < self.stages - 1:
            yield RecvGrad(buffer)
        yield BackwardPass(buffer)
        if self.stage_id > 0:
            yield SendGrad(buffer)
