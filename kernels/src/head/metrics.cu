// Mean losses of a micro-batch: sums of the tokens' losses times the loss scale, set or added to.
// One block; each thread adds every 1024th token, then the block meets: a fixed order.
// Runs once a micro-batch over a few thousand floats.
#include "head/statistics.cuh"

KERNEL(head_metrics_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const float *kd = (const float*)p.kd, *ce = (const float*)p.ce;
    float kd_sum = 0.0f, ce_sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < p.tokens; i += VARIANT_THREADS) {
        kd_sum += kd[i];
        ce_sum += ce[i];
    }
    kd_sum = total(kd_sum, scratch);
    ce_sum = total(ce_sum, scratch);
    if (threadIdx.x > 0) return;
    const micro_scalars micro = *(const micro_scalars*)p.micro;
    step_metrics* metrics = (step_metrics*)p.metrics;
    metrics->kd_loss = (micro.accumulate ? metrics->kd_loss : 0.0f) + kd_sum * micro.loss_scale;
    metrics->ce_loss = (micro.accumulate ? metrics->ce_loss : 0.0f) + ce_sum * micro.loss_scale;
}
