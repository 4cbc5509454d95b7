// The forward GEMMs: of a whole matrix, or of experts. K is in elements of 16 bits.
#pragma once
#include "gemm/wgmma/mainloop.cuh"
#ifdef KEY_EXPERTS
#include "gemm/wgmma/experts.cuh"
#endif

template <typename Params, typename Epilogue>
__device__ __forceinline__ void forward(const Params& p, uint32_t k, Epilogue& epilogue) {
    enum : uint32_t { PARTS = Epilogue::PAIRED ? 2 : 1 }; // of W's rows: gate and up
#ifdef KEY_EXPERTS
    const ExpertProblem problem = {{(const uint32_t*)p.tiles}, p.m, p.n, k, PARTS * p.n};
    gemm<false, false, ExpertScheduler<TILE_N / PARTS>>(p.maps, problem, epilogue);
#else
    gemm<false, false, TileScheduler<false, TILE_N / PARTS>, true>(p.maps, {p.m, p.n, k}, epilogue);
#endif
}
