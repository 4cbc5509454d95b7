//! Functions of `libcublasLt.so` that GEMMs need, and their constants, from `cublasLt.h` of version 13.

use std::ffi::{c_char, c_int, c_void};

pub(crate) type Status = c_int;

pub(crate) const SUCCESS: Status = 0;

/// `CUBLAS_COMPUTE_32F`: accumulates in f32, with unmodified inputs.
pub(crate) const COMPUTE_F32: c_int = 68;
/// `CUBLAS_OP_N`, `CUBLAS_OP_T`.
pub(crate) const AS_IS: i32 = 0;
pub(crate) const TRANSPOSED: i32 = 1;
/// `CUBLASLT_EPILOGUE_BIAS`.
pub(crate) const EPILOGUE_BIAS: u32 = 4;
/// `CUBLASLT_POINTER_MODE_DEVICE`: alpha and beta are read on the device.
pub(crate) const FACTORS_ON_DEVICE: i32 = 1;
/// `CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE`: partial sums go to the workspace in f32 and are added in a step of their
/// own. The other schemes accumulate in the result, in arrival order, or in the result's dtype.
pub(crate) const REDUCTION_IN_WORKSPACE: u32 = 2;

/// `cudaDataType`.
pub(crate) mod data_type {
    pub const F32: i32 = 0;
    pub const BF16: i32 = 14;
}

/// `cublasLtMatmulDescAttributes_t`.
pub(crate) mod desc {
    pub const POINTER_MODE: i32 = 2;
    pub const TRANSPOSE_A: i32 = 3;
    pub const TRANSPOSE_B: i32 = 4;
    pub const EPILOGUE: i32 = 7;
    pub const BIAS_POINTER: i32 = 8;
}

/// `cublasLtMatmulPreferenceAttributes_t`.
pub(crate) mod preference {
    pub const MOST_WORKSPACE_BYTES: i32 = 1;
    pub const REDUCTION_SCHEMES: i32 = 3;
    pub const LEAST_ALIGNMENTS: [i32; 4] = [5, 6, 7, 8];
}

/// `cublasLtMatmulAlgo_t`: opaque.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Algorithm([u64; 8]);

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub algorithm: Algorithm,
    pub workspace_bytes: usize,
    pub state: Status,
    pub waves: f32,
    _reserved: [c_int; 4],
}

/// Declares pointers to functions under the library's names.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) -> $result:ty;)*) => {
        #[allow(non_snake_case)]
        pub(crate) struct Functions {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> $result,)*
        }

        impl Functions {
            /// # Safety
            /// The library is cuBLASLt 13, and stays open.
            ///
            /// # Errors
            /// If a function is missing.
            pub unsafe fn of(library: &libloading::Library) -> Result<Self, libloading::Error> {
                // SAFETY: the functions have these types.
                Ok(Self { $($name: unsafe { *library.get(stringify!($name))? },)* })
            }
        }
    };
}

type Pointer = *mut c_void;
type OutPointer = *mut *mut c_void;

functions! {
    cublasLtGetStatusName: fn(Status) -> *const c_char;
    cublasLtCreate: fn(OutPointer) -> Status;
    cublasLtDestroy: fn(Pointer) -> Status;
    cublasLtMatmulDescCreate: fn(OutPointer, c_int, i32) -> Status;
    cublasLtMatmulDescSetAttribute: fn(Pointer, i32, *const c_void, usize) -> Status;
    cublasLtMatmulDescDestroy: fn(Pointer) -> Status;
    cublasLtMatrixLayoutCreate: fn(OutPointer, i32, u64, u64, i64) -> Status;
    cublasLtMatrixLayoutDestroy: fn(Pointer) -> Status;
    cublasLtMatmulPreferenceCreate: fn(OutPointer) -> Status;
    cublasLtMatmulPreferenceSetAttribute: fn(Pointer, i32, *const c_void, usize) -> Status;
    cublasLtMatmulPreferenceDestroy: fn(Pointer) -> Status;
    // Handle, operation, layouts of a, b, c and d, preference, number requested, results, number returned.
    cublasLtMatmulAlgoGetHeuristic:
        fn(Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, Pointer, c_int, *mut Found, *mut c_int) -> Status;
    // Handle, operation, alpha; a, b and their layouts; beta; c, d and their layouts; algorithm, workspace, stream.
    cublasLtMatmul:
        fn(
            Pointer, Pointer, *const c_void, *const c_void, Pointer, *const c_void, Pointer, *const c_void,
                *const c_void, Pointer,
            Pointer, Pointer, *const Algorithm, Pointer, usize, Pointer
        ) -> Status;
}
