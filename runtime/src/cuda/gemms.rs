//! Computes GEMMs by cuBLASLt: each runs once when it is prepared, so that everything the library loads or allocates
//! for it is there before the seal.

use std::collections::HashMap;
use std::ffi::{CStr, c_int, c_void};
use std::fmt::Display;
use std::ptr::null_mut;

use cudarc::driver::sys;
use precast_core::blas::Matrix;
use precast_core::{Addend, BlasGemm, Dtype, Key};

use super::call::check_on;
use super::graph::Graph;
use super::memory::free_and_total;
use crate::cublas::ffi::{self, Algorithm, Found, Functions, Status, data_type, desc, preference};
use crate::cublas::{Cublas, Version};
use crate::driver::{Bound, BoundGemm, Device, DriverError};

/// Alignment of every operand of a plan, bytes.
const ALIGN: u32 = 16;

/// Inputs to a GEMM's choice of algorithm, besides library and device: key, shape, factors on the device or not.
/// Addresses are left out: a GEMM has the same bits wherever a plan puts it.
type Shape = (Key, Vec<u8>, bool);

/// The library on a device.
pub(super) struct CublasGemms {
    functions: &'static Functions,
    handle: Object,
    /// Algorithms of GEMMs that have run.
    known: HashMap<Shape, Algorithm>,
    pub version: Version,
    /// Device memory that the library has allocated for itself.
    pub taken_bytes: u64,
    /// True if the device shares the host's memory.
    integrated: bool,
}

impl CublasGemms {
    /// Sets the library up on the current device.
    pub fn new(cublas: &Cublas, device: &Device) -> Result<Self, DriverError> {
        let integrated = device.integrated;
        let (functions, free_before) = (cublas.functions, free_and_total(integrated)?.0);
        // SAFETY: writes one handle.
        let create = |place| unsafe { (functions.cublasLtCreate)(place) };
        let handle = Object::new(functions, "cublasLtCreate", &"", create, functions.cublasLtDestroy)?;
        let taken_bytes = free_before.saturating_sub(free_and_total(integrated)?.0);
        Ok(Self { functions, handle, known: HashMap::new(), version: cublas.version(), taken_bytes, integrated })
    }

    /// Adds a GEMM to a graph; runs it once if it is the first of its shape.
    pub fn prepare(
        &mut self,
        graph: &mut Graph,
        stream: sys::CUstream,
        node: &Bound,
        gemm: &BoundGemm,
    ) -> Result<(), DriverError> {
        let label = &node.label;
        let operation = Operation::new(self.functions, label, gemm)?;
        let shape = (gemm.key.clone(), gemm.key.shape(&gemm.params), gemm.factors.is_some());
        let algorithm = match self.known.get(&shape) {
            Some(algorithm) => *algorithm,
            None => {
                let free_before = free_and_total(self.integrated)?.0;
                let found = operation.choose(self.handle.pointer, gemm.workspace.1)?;
                operation.enqueue(self.handle.pointer, &found, stream)?;
                // The next one may load its code, with nothing running. SAFETY: the stream is live.
                check_on("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream) }, label)?;
                self.taken_bytes += free_before.saturating_sub(free_and_total(self.integrated)?.0);
                self.known.insert(shape, found);
                found
            }
        };
        graph.capture(node, stream, || operation.enqueue(self.handle.pointer, &algorithm, stream))
    }
}

/// An object of the library, and the function that destroys it.
struct Object {
    pointer: *mut c_void,
    destroy: unsafe extern "C" fn(*mut c_void) -> Status,
}

impl Object {
    fn new(
        functions: &Functions,
        call: &'static str,
        label: &dyn Display,
        create: impl FnOnce(*mut *mut c_void) -> Status,
        destroy: unsafe extern "C" fn(*mut c_void) -> Status,
    ) -> Result<Self, DriverError> {
        let mut pointer = null_mut();
        check(functions, call, create(&mut pointer), label)?;
        Ok(Self { pointer, destroy })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the library made it, for this value alone.
        let _ = unsafe { (self.destroy)(self.pointer) };
    }
}

/// Checks the result of a call of the library.
fn check(functions: &Functions, call: &'static str, status: Status, label: &dyn Display) -> Result<(), DriverError> {
    if status == ffi::SUCCESS {
        return Ok(());
    }
    // SAFETY: returns a static C string for any status.
    let name = unsafe { CStr::from_ptr((functions.cublasLtGetStatusName)(status)) }.to_string_lossy().into_owned();
    Err(DriverError::Call { call, code: status as u32, name, context: format!(" on {label}") })
}

/// A GEMM as the library describes it, with operand addresses.
struct Operation<'a> {
    functions: &'static Functions,
    label: &'a dyn Display,
    gemm: BlasGemm,
    workspace: (u64, u64),
    factors: Option<u64>,
    desc: Object,
    a: Object,
    b: Object,
    d: Object,
}

impl<'a> Operation<'a> {
    fn new(functions: &'static Functions, label: &'a dyn Display, bound: &BoundGemm) -> Result<Self, DriverError> {
        let gemm = bound.key.kernel().blas_gemm(&bound.params).expect("cuBLASLt is given GEMMs");
        let layout = |Matrix { rows, columns, dtype, .. }: Matrix| {
            let [rows, columns] = [rows, columns].map(u64::from);
            // SAFETY: writes one handle.
            let create = |place| unsafe {
                (functions.cublasLtMatrixLayoutCreate)(place, data_type_of(dtype), rows, columns, rows as i64)
            };
            let destroy = functions.cublasLtMatrixLayoutDestroy;
            Object::new(functions, "cublasLtMatrixLayoutCreate", label, create, destroy)
        };
        // SAFETY: writes one handle.
        let create = |place| unsafe { (functions.cublasLtMatmulDescCreate)(place, ffi::COMPUTE_F32, data_type::F32) };
        let destroy = functions.cublasLtMatmulDescDestroy;
        let operation = Self {
            functions,
            label,
            workspace: bound.workspace,
            factors: bound.factors,
            desc: Object::new(functions, "cublasLtMatmulDescCreate", label, create, destroy)?,
            a: layout(gemm.a)?,
            b: layout(gemm.b)?,
            d: layout(gemm.d)?,
            gemm,
        };
        let transpose = |transposed| if transposed { ffi::TRANSPOSED } else { ffi::AS_IS };
        operation.describe(desc::TRANSPOSE_A, &transpose(gemm.a_transposed))?;
        operation.describe(desc::TRANSPOSE_B, &transpose(gemm.b_transposed))?;
        if bound.factors.is_some() {
            operation.describe(desc::POINTER_MODE, &ffi::FACTORS_ON_DEVICE)?;
        }
        if gemm.bias.is_some() {
            operation.describe(desc::EPILOGUE, &ffi::EPILOGUE_BIAS)?;
        }
        Ok(operation)
    }

    fn describe<T>(&self, attribute: i32, value: &T) -> Result<(), DriverError> {
        let pointer = std::ptr::from_ref(value).cast();
        // SAFETY: the library copies as many bytes as it is told that the value has, and compares with what it expects.
        let set = unsafe {
            (self.functions.cublasLtMatmulDescSetAttribute)(self.desc.pointer, attribute, pointer, size_of::<T>())
        };
        check(self.functions, "cublasLtMatmulDescSetAttribute", set, self.label)
    }

    /// Returns the library heuristic's first algorithm for this shape: nothing is timed, so the choice is
    /// deterministic.
    fn choose(&self, handle: *mut c_void, workspace_bytes: u64) -> Result<Algorithm, DriverError> {
        let functions = self.functions;
        // SAFETY: writes one handle.
        let create = |place| unsafe { (functions.cublasLtMatmulPreferenceCreate)(place) };
        let destroy = functions.cublasLtMatmulPreferenceDestroy;
        let wanted = Object::new(functions, "cublasLtMatmulPreferenceCreate", self.label, create, destroy)?;
        let want = |attribute, value: &[u8]| {
            // SAFETY: as of the description's attributes.
            let set = unsafe {
                let (pointer, bytes) = (value.as_ptr().cast(), value.len());
                (functions.cublasLtMatmulPreferenceSetAttribute)(wanted.pointer, attribute, pointer, bytes)
            };
            check(functions, "cublasLtMatmulPreferenceSetAttribute", set, self.label)
        };
        want(preference::MOST_WORKSPACE_BYTES, &workspace_bytes.to_ne_bytes())?;
        want(preference::REDUCTION_SCHEMES, &ffi::REDUCTION_IN_WORKSPACE.to_ne_bytes())?;
        for operand in preference::LEAST_ALIGNMENTS {
            want(operand, &ALIGN.to_ne_bytes())?;
        }
        if self.gemm.bias.is_some() {
            // Only its alignment counts; it is not read.
            self.describe(desc::BIAS_POINTER, &u64::from(ALIGN))?;
        }
        let (mut found, mut count): (Found, c_int) = (Found::default(), 0);
        // SAFETY: all handles are live; at most one result is written.
        let asked = unsafe {
            let [a, b, d] = [&self.a, &self.b, &self.d].map(|layout| layout.pointer);
            let (desc, wanted) = (self.desc.pointer, wanted.pointer);
            (functions.cublasLtMatmulAlgoGetHeuristic)(handle, desc, a, b, d, d, wanted, 1, &mut found, &mut count)
        };
        check(functions, "cublasLtMatmulAlgoGetHeuristic", asked, self.label)?;
        check(functions, "cublasLtMatmulAlgoGetHeuristic", found.state, self.label)?;
        if count == 0 {
            let reason = "cuBLASLt has no algorithm for it that gives the same bits each time".to_owned();
            return Err(DriverError::Launch { label: self.label.to_string(), reason });
        }
        tracing::info!(
            workspace_bytes = found.workspace_bytes,
            waves = f64::from(found.waves),
            "cublas {}",
            self.label
        );
        Ok(found.algorithm)
    }

    /// Enqueues the GEMM on the stream.
    fn enqueue(&self, handle: *mut c_void, algorithm: &Algorithm, stream: sys::CUstream) -> Result<(), DriverError> {
        let BlasGemm { a, b, d, bias, addend, .. } = self.gemm;
        if let Some(bias) = bias {
            self.describe(desc::BIAS_POINTER, &bias)?;
        }
        let (one, zero) = (1.0f32, 0.0f32);
        let host = std::ptr::from_ref::<f32>;
        let (c, factor) = match addend {
            Addend::Nothing => (d.address, host(&zero)),
            Addend::Matrix(address) => (address, host(&one)),
            Addend::Accumulated(_) => (d.address, std::ptr::null()),
        };
        // Two f32 on the device or on the host: alpha, beta.
        let (alpha, beta) = match self.factors {
            Some(factors) => (factors as *const c_void, (factors + 4) as *const c_void),
            None => (host(&one).cast(), factor.cast()),
        };
        assert!(!beta.is_null(), "{}: nothing says whether to add to what is there", self.label);
        // SAFETY: handles are live, operands and workspace are memory of the device and as large as the layouts and the
        // algorithm say; factors on the host are read before the call returns.
        let enqueued = unsafe {
            (self.functions.cublasLtMatmul)(
                handle,
                self.desc.pointer,
                alpha,
                a.address as *const c_void,
                self.a.pointer,
                b.address as *const c_void,
                self.b.pointer,
                beta,
                c as *const c_void,
                self.d.pointer,
                d.address as *mut c_void,
                self.d.pointer,
                algorithm,
                self.workspace.0 as *mut c_void,
                self.workspace.1 as usize,
                stream.cast(),
            )
        };
        check(self.functions, "cublasLtMatmul", enqueued, self.label)
    }
}

fn data_type_of(dtype: Dtype) -> i32 {
    match dtype {
        Dtype::Bf16 => data_type::BF16,
        Dtype::F32 => data_type::F32,
        Dtype::U32 | Dtype::I8 => panic!("cuBLASLt is given no GEMM of {dtype}"),
    }
}
