"""DeepSpeed schedules with one mistake each; `deepspeed:pipe_schedules.py:NAME` executes them."""

from deepspeed.runtime.pipe import schedule as ds
from deepspeed.runtime.pipe.engine import PipelineEngine


class Fewer(ds.TrainSchedule):
    def num_pipe_buffers(self):
        return max(1, super().num_pipe_buffers() - 1)


class Forwards(ds.TrainSchedule):
    """All forwards, then all backwards: more losses than the engine has places for."""

    def num_pipe_buffers(self):
        return self.micro_batches

    def steps(self):
        for i in range(self.micro_batches):
            yield [ds.RecvActivation(i)] * (self.stage_id > 0)
            if self.stage_id in (0, self.stages - 1):
                yield [ds.LoadMicroBatch(i)]
            yield [ds.ForwardPass(i)]
            yield [ds.SendActivation(i)] * (self.stage_id < self.stages - 1)
        for i in range(self.micro_batches):
            yield [ds.RecvGrad(i)] * (self.stage_id < self.stages - 1)
            yield [ds.BackwardPass(i)]
            yield [ds.SendGrad(i)] * (self.stage_id > 0)
        yield [ds.ReduceGrads(), ds.OptimizerStep()]


class Nothing(ds.PipeSchedule):
    def steps(self):
        yield [ds.LoadMicroBatch(0), ds.ForwardPass(0), ds.BackwardPass(0), ds.BackwardPass(0)]


class Unnamed(ds.PipeSchedule):
    def steps(self):
        yield [ds.ForwardPass(None)]


class Endless(ds.PipeSchedule):
    def steps(self):
        while True:
            yield [ds.ForwardPass(0)]


class Engine(PipelineEngine): ...
