// Distillation losses and the gradient of the student's logits, in place, in one launch over a chunk of tokens: by the
// KL of student from teacher, or of teacher from student.
// Bound: memory. A cluster reads both rows once and writes one; the exponentials, up to three per element and pass,
// come next.
// Source: Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, over Hinton's losses (`mod.rs`).
#define FORM (KEY_REVERSE ? REVERSE : FORWARD)
#include "head/distill.cuh"

ROW_KERNEL(head_distill_params) {
    __shared__ StorageOf<FORM> storage;
    if (p.vocab % WIDTH_OF(KEY_X) == 0)
        distill<WIDTH_OF(KEY_X)>(p, storage);
    else
        distill<1>(p, storage);
}
