// What a CUDA compiler declares of itself, for one that reads declarations alone.
#define __global__ __attribute__((annotate("__global__")))
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __shared__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)
#define VECTORS(type, name, two, four) \
    struct name##1 { type x; }; \
    struct __align__(two) name##2 { type x, y; }; \
    struct name##3 { type x, y, z; }; \
    struct __align__(four) name##4 { type x, y, z, w; };
typedef decltype(sizeof(0)) size_t;
typedef decltype((char*)0 - (char*)0) ptrdiff_t;
typedef unsigned long long cudaTextureObject_t, cudaSurfaceObject_t;
VECTORS(signed char, char, 2, 4)
VECTORS(unsigned char, uchar, 2, 4)
VECTORS(short, short, 4, 8)
VECTORS(unsigned short, ushort, 4, 8)
VECTORS(int, int, 8, 16)
VECTORS(unsigned int, uint, 8, 16)
VECTORS(long, long, 16, 16)
VECTORS(unsigned long, ulong, 16, 16)
VECTORS(long long, longlong, 16, 16)
VECTORS(unsigned long long, ulonglong, 16, 16)
VECTORS(float, float, 8, 16)
VECTORS(double, double, 16, 16)
struct dim3 { unsigned int x, y, z; };
#undef VECTORS
