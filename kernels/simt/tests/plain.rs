//! Files that are compiled as they are: what the machine takes of them, and how it says that it does not.

use precast_core::host::Views;
use precast_core::plain::{Parameter, PlainKernel, PlainUnit};
use precast_core::{
    Arch, Build, Dtype, Geometry, Key, Op, Reference, Registry, Source, Threads, parameters, plain, source,
};

use crate::SIMT;

const INT: Parameter = Parameter { name: "n", offset: 0, bytes: 4, align: 4 };

/// A kernel of a file, which has others.
fn kernel(path: &'static str, text: &'static str, name: &'static str, symbol: &'static str) -> &'static PlainKernel {
    let unit = PlainUnit {
        source: Source { path, text, headers: &[("half.cuh", HALF)], common: &source::AS_IT_IS },
        entries: &[],
        instances: &[],
        interface: "",
        file: "src/kernels.rs",
        command: "precast-aot abi k/a.cu --out src/kernels.rs",
    };
    let kernel = PlainKernel { name, symbol, unit: Box::leak(Box::new(unit)), parameters: &[INT] };
    Box::leak(Box::new(kernel))
}

const HALF: &str = "static __host__ __device__ int half(int n) {\n    return nothing(n);\n}\n";

fn compiled(kernel: &'static PlainKernel) -> Result<precast_simt::Program, String> {
    let pair = Key::of_plain(kernel).built(Arch::Sm89).next().unwrap();
    SIMT.compile_pair(&pair.source(), &pair, Arch::Sm89).map_err(|error| error.to_string())
}

/// Mixed sizes, vectors by value and by address, shuffles, several kernels with shared memory of their own.
const TEXT: &str = r#"
#ifndef __CUDACC_RTC__
#error
#endif
__constant__ float TWO[1] = {2};
struct pair { char a; double b; };
__global__ void other() { __shared__ float all[16 * 1024]; all[threadIdx.x] = 0; }
__global__ void mixed(char a, float4 b, short c, pair d, float4* out) {
    __shared__ float first;
    extern __shared__ float rest[];
    float sum = threadIdx.x;
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_down_sync(0xffffffffu, sum, lanes);
    const float up = __shfl_up_sync(0xffffffffu, sum, 31);
    if (threadIdx.x == 31) first = up;
    rest[threadIdx.x] = a + c;
    __syncthreads();
    if (threadIdx.x == 0) *out = make_float4(first, rest[9], d.a + d.b, TWO[0] * b.w);
}
"#;

#[test]
fn a_file_is_executed_as_it_is_and_its_other_kernels_are_left_out() {
    let program = compiled(kernel("k/a.cu", TEXT, "mixed", "_Z23mixed__PLACE_OF_DIGITS_c6float4s4pairPS_")).unwrap();
    assert_eq!(program.static_shared_bytes(), 4);
    let mut out = [0; 16];
    let mut params = vec![0; 64];
    params[0] = 3;
    params[28..32].copy_from_slice(&4f32.to_le_bytes());
    params[32..34].copy_from_slice(&5i16.to_le_bytes());
    params[40] = 6;
    params[48..56].copy_from_slice(&7f64.to_le_bytes());
    let mut buffer = precast_core::host::Buffer::filled(16, 0);
    params[56..].copy_from_slice(&(buffer.as_ptr() as u64).to_le_bytes());
    let operand = precast_simt::Operand { name: "out", bytes: &mut buffer, writable: true, written: false };
    let geometry = Geometry { shared_bytes: 128, ..Geometry::linear(1, 32) };
    program.launch(&geometry, &params, &mut [operand], 1).unwrap_or_else(|report| panic!("{report}"));
    out.copy_from_slice(&buffer);
    let out: Vec<f32> = out.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(out, [496.0, 8.0, 13.0, 8.0]);
}

#[test]
fn what_the_machine_does_not_have_is_named_with_file_and_line() {
    let said = |text, place: &str, what: &str| {
        let said = compiled(kernel("k/a.cu", text, "f", "_Z19f__PLACE_OF_DIGITS_i")).err().unwrap();
        assert!(said.starts_with("k/a.cu does not compile for the host\n"), "{said}");
        assert!(said.lines().any(|line| line.contains(place) && line.contains(what)), "{said}");
    };
    said("\n__global__ void f(int n) {\n    __nanosleep(n);\n}", "k/a.cu:3:", "__nanosleep");
    said("#include \"half.cuh\"\n__global__ void f(int n) { half(n); }", "half.cuh:2:", "nothing");
    said("extern __shared__ int all[];\n__global__ void f(int n) { all[n] = 0; }", "k/a.cu:1:", "outside functions");
    said("#include <cuda_fp16.h>\n__global__ void f(int n) {}", "k/a.cu:1:", "cuda_fp16.h");
}

#[test]
fn kernels_without_a_name_to_call_and_ptx_are_refused() {
    let refused = |kernel| compiled(kernel).err().unwrap();
    let said = [
        refused(kernel("k/a.cu", "namespace k { __global__ void f(int n) {} }", "f", "_ZN1k19f__PLACE_OF_DIGITS_Ei")),
        refused(kernel("k/a.ptx", ".visible .entry f(.param .u32 n) { ret; }", "f", "f")),
    ];
    insta::assert_snapshot!(said.join("\n"));
}

parameters! {
    /// Parameters of `tripled`.
    pub struct tripled_params, TripledArgs {
        operand x(ReadWrite => Dtype::F32, n);
        scalar n(u32);
        internal reserved(u32);
    }
    |self, p| [n = p.n] {}
    /// Multiplies n floats.
    kernel Tripled = "tripled" {};
}

const CALLED: &str = r#"
__device__ float triple(float x) { return 3 * x; }
__device__ float other(float x) {
    if (x > 1) return 2 * x;
    return x;
}
__global__ void others(float* x) { x[0] = other(x[1]); }
__global__ void tripled(float* x, unsigned int n) {
    if (threadIdx.x < n) x[threadIdx.x] = triple(x[threadIdx.x]);
}
"#;

static CALLED_CU: PlainUnit = PlainUnit {
    source: Source { path: "k/called.cu", text: CALLED, headers: &[], common: &source::AS_IT_IS },
    entries: &["others", "tripled"],
    instances: &[],
    interface: "",
    file: "src/kernels.rs",
    command: "precast-aot abi k/called.cu --out src/kernels.rs",
};

plain! {
    #[allow(dead_code)]
    CALLED_CU TRIPLED = "tripled" as "_Z25tripled__PLACE_OF_DIGITS_Pfj",
    tripled(x: u64 = 0, n: u32 = 8)
}

impl Build for Tripled {
    type Variant = Threads;

    fn plain(&self) -> Option<&'static PlainKernel> {
        Some(&TRIPLED)
    }
    fn variants(&self, _arch: Arch) -> Vec<Threads> {
        vec![Threads { threads: 64 }]
    }
    fn geometry(&self, variant: Threads, _p: &Self::Params) -> Geometry {
        Geometry::linear(1, variant.threads)
    }
}

impl Reference for Tripled {
    fn examples() -> Vec<Self> {
        vec![Self {}]
    }
    fn host(&self, _p: &Self::Params, views: &mut Views<'_>) {
        views.store("x").iter_mut().for_each(|x| *x *= 3.0);
    }
    fn samples(&self) -> Vec<Self::Params> {
        vec![Self::Params { n: 50, ..Default::default() }]
    }
}

/// No sample can execute a function that another kernel alone uses.
#[test]
fn functions_of_other_kernels_need_not_be_executed() {
    static KERNELS: Registry = Registry::new("of the test", &[Op::of::<Tripled>()]);
    precast_simt::check(&KERNELS, [Arch::Sm89]).unwrap_or_else(|error| panic!("{error}"));
}

/// Counts bytes by their two lowest bits; `{ZEROED}` is a barrier, `{COUNT}` an addition.
const HISTOGRAM: &str = r#"
extern "C" __global__ void counts(const unsigned char* x, unsigned int* bins, unsigned long long* most, float* sum) {
    __shared__ unsigned int own[4];
    if (threadIdx.x < 4) own[threadIdx.x] = 0;
    {ZEROED}
    const unsigned int bin = x[threadIdx.x + blockDim.x * blockIdx.x] & 3;
    {COUNT}
    __syncthreads();
    if (threadIdx.x < 4) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
    atomicMax(most, 1ull << 40 | threadIdx.x);
    atomicAdd(sum, 0.5f);
}
"#;

/// Executes it with two blocks of 64 threads.
fn counted(zeroed: &str, count: &str, seed: u64) -> Result<([u32; 4], u64, f32), String> {
    let text = HISTOGRAM.replace("{ZEROED}", zeroed).replace("{COUNT}", count).leak();
    let program = compiled(kernel("k/a.cu", text, "counts", "counts")).unwrap();
    let (mut x, mut bins, mut most, mut sum) = (vec![7u8; 128], vec![0u8; 16], vec![0u8; 8], vec![0u8; 4]);
    x[..28].fill(1);
    let operands =
        [("x", &mut x, false), ("bins", &mut bins, true), ("most", &mut most, true), ("sum", &mut sum, true)];
    let params: Vec<u8> = operands.iter().flat_map(|(_, bytes, _)| (bytes.as_ptr() as u64).to_le_bytes()).collect();
    let operand = |(name, bytes, writable): (&'static str, _, _)| {
        let bytes: &mut Vec<u8> = bytes;
        precast_simt::Operand { name, bytes, writable, written: true }
    };
    let launched = program.launch(&Geometry::linear(2, 64), &params, &mut operands.map(operand), seed);
    launched.map_err(|report| report.to_string())?;
    let bins: Vec<u32> = bins.chunks(4).map(|bytes| u32::from_le_bytes(bytes.try_into().unwrap())).collect();
    let bins = bins.try_into().unwrap();
    Ok((bins, u64::from_le_bytes(most.try_into().unwrap()), f32::from_le_bytes(sum.try_into().unwrap())))
}

#[test]
fn atomic_operations_are_no_race_and_plain_ones_beside_them_are() {
    let (barrier, add) = ("__syncthreads();", "atomicAdd(&own[bin], 1u);");
    for seed in 1..4 {
        assert_eq!(counted(barrier, add, seed), Ok(([0, 28, 0, 100], 1 << 40 | 63, 64.0)));
        for (zeroed, count, parts) in [
            ("", add, ["data race", "atomic operation", "shared `own`"]),
            (barrier, "own[bin] += 1;", ["data race", "write", "shared `own`"]),
            (barrier, "atomicAdd(&own[bin], 1u); if (own[bin] == 9) own[3] = 0;", ["data race", "atomic", "read"]),
        ] {
            let said = counted(zeroed, count, seed).unwrap_err();
            parts.iter().for_each(|part| assert!(said.contains(part), "`{part}` is not said:\n{said}"));
        }
    }
}

/// Executes the body of a kernel of `unsigned int* n`, which holds zero, with two blocks of 32 threads.
fn shared_count(body: &str, seed: u64) -> Result<u32, String> {
    let text = format!("extern \"C\" __global__ void f(unsigned int* n) {{ {body} }}").leak();
    let program = compiled(kernel("k/a.cu", text, "f", "f")).unwrap();
    let mut bytes = [0u8; 4];
    let params = (bytes.as_ptr() as u64).to_le_bytes();
    let operand = precast_simt::Operand { name: "n", bytes: &mut bytes, writable: true, written: true };
    let launched = program.launch(&Geometry::linear(2, 32), &params, &mut [operand], seed);
    launched.map(|()| u32::from_le_bytes(bytes)).map_err(|report| report.to_string())
}

/// The second block comes before or behind the first one, by the seed.
#[test]
fn an_atomic_operation_does_not_hide_the_plain_write_before_it() {
    for seed in 1..9 {
        let said = shared_count(
            "if (blockIdx.x == 0 && threadIdx.x == 0) *n = 0; __syncthreads(); if (threadIdx.x == 0) atomicAdd(n, 1u);",
            seed,
        );
        let said = said.unwrap_err();
        assert!(said.contains("data race") && said.contains("operand `n`"), "{seed}: {said}");
    }
}

#[test]
fn a_thread_waits_for_what_another_blocks_atomic_operation_changes() {
    let barrier = "if (threadIdx.x == 0) { atomicAdd(n, 1u); while (atomicAdd(n, 0u) < ARRIVALS) {} }";
    for seed in 1..3 {
        assert_eq!(shared_count(&barrier.replace("ARRIVALS", "gridDim.x"), seed), Ok(2));
        let said = shared_count(&barrier.replace("ARRIVALS", "3"), seed).unwrap_err();
        assert!(said.contains("deadlock"), "{said}");
    }
}

#[test]
fn an_exchange_reads_nothing_and_a_stack_has_no_atomic_operations() {
    let exchange = "__shared__ unsigned int last; if (threadIdx.x == 0) { atomicExch(&last, 7u); atomicMax(n, last); }";
    assert_eq!(shared_count(exchange, 1), Ok(7));
    let unwritten = "__shared__ unsigned int last; if (threadIdx.x == 0) atomicMax(n, atomicAdd(&last, 1u));";
    let said = shared_count(unwritten, 1).unwrap_err();
    assert!(said.contains("uninitialized") && said.contains("shared `last`"), "{said}");
    let said = shared_count("unsigned int own = 0; atomicAdd(&own, 1u); *n = own;", 1).unwrap_err();
    assert!(said.contains("access out of bounds"), "{said}");
}
