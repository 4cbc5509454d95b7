// Mean losses of a micro-batch: the sum of the tokens' losses times the loss scale, set or added to. Without
// a teacher there is no divergence, and its mean is 0.
// One CTA, so the order of the additions is fixed: each thread adds every VARIANT_THREADS-th token, then the CTA
// reduces.
// Bound: latency. It runs once per micro-batch over a few thousand floats. Source: the definition of the mean.
#include "device.cuh"
#include "head.h"

KERNEL(head_metrics_params) {
    __shared__ float scratch[VARIANT_THREADS / WARP];
    const float *kd = (const float*)p.kd, *ce = (const float*)p.ce;
    float kd_sum = 0.0f, ce_sum = 0.0f;
    for (uint32_t i = threadIdx.x; i < p.tokens; i += VARIANT_THREADS) {
        if (KEY_KD) kd_sum += kd[i];
        ce_sum += ce[i];
    }
    if (KEY_KD) {
        kd_sum = block_sum<VARIANT_THREADS>(kd_sum, scratch);
        sync_block(); // scratch is reused
    }
    ce_sum = block_sum<VARIANT_THREADS>(ce_sum, scratch);
    if (threadIdx.x > 0) return;
    const micro_scalars micro = *(const micro_scalars*)p.micro;
    step_metrics* metrics = (step_metrics*)p.metrics;
    metrics->kd_loss = (micro.accumulate ? metrics->kd_loss : 0.0f) + kd_sum * micro.loss_scale;
    metrics->ce_loss = (micro.accumulate ? metrics->ce_loss : 0.0f) + ce_sum * micro.loss_scale;
}
