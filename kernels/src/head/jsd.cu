// Distillation losses and the gradient of the student's logits, in place, in one launch over a chunk of tokens: by the
// divergences of teacher and student from their mixture, generalized Jensen-Shannon.
// The mixture needs both softmaxes, and its gradient the mean over all tokens of the vocabulary: a pass between the
// other two.
// Bound: exponentials and logarithms, eight per element in all; a cluster reads both rows once and writes one.
// Source: Agarwal et al., "On-Policy Distillation of Language Models", 2024.
#define FORM JSD
#include "head/distill.cuh"

ROW_KERNEL(head_jsd_params) {
    __shared__ StorageOf<FORM> storage;
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        distill<WIDTH_OF(KEY_X)>(p, storage);
    else
        distill<1>(p, storage);
}
