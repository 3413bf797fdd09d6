torchrun --nproc_per_node 8 pretrain_gpt.py \
  --num-layers 12 --pipeline-model-parallel-size 8 --tensor-model-parallel-size 1 \
  --micro-batch-size 1 --global-batch-size 128
