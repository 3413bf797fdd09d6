torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
    --num-layers 24 --micro-batch-size 1 --global-batch-size 30 \
    --pipeline-model-parallel-size 4 --num-virtual-stage-per-pipeline-rank 2 \
    --tensor-model-parallel-size 2 --no-overlap-p2p-communication
