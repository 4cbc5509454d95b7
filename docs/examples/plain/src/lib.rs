//! Five kernels that a program has already, on the streams and buffers of cudarc: compiled ahead of time as they are,
//! verified, and loaded before anything is launched. Two of them have a reference.

pub mod kernels;
pub mod vectors;

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use precast_core::{Geometry, Kernels};
use precast_runtime::{Bundle, DriverError, Modules};

pub static KERNELS: Kernels = Kernels::new("plain", vectors::abi::OPS, kernels::PLAIN);

/// Returns the machine code in this program.
pub fn bundle() -> Result<Bundle<'static, Kernels>, Box<dyn Error>> {
    Ok(precast_runtime::embedded!().bundle(&KERNELS)?)
}

/// Loads every kernel of this program into the context of a GPU, before the first launch.
pub fn load(gpu: u32) -> Result<Modules, Box<dyn Error>> {
    Ok(Modules::open(gpu, &bundle()?, &KERNELS.examples())?)
}

/// Queues `y += a x` on a stream.
pub fn saxpy(
    modules: &Modules,
    stream: &CudaStream,
    a: f32,
    x: &CudaSlice<f32>,
    y: &mut CudaSlice<f32>,
) -> Result<(), DriverError> {
    assert_eq!(x.len(), y.len());
    let n = x.len() as i32;
    // The guards order streams that share a buffer; they live until the launch is queued.
    let ((x, _x), (y, _y)) = (x.device_ptr(stream), y.device_ptr_mut(stream));
    // SAFETY: two buffers of n floats of the modules' context, which cudarc frees after the launch.
    unsafe { kernels::saxpy(modules.on(stream), Geometry::linear(n.cast_unsigned().div_ceil(256), 256), x, y, a, n) }
}

/// Returns the sum of `x`.
pub fn sum(modules: &Modules, stream: &Arc<CudaStream>, x: &CudaSlice<f32>) -> Result<f32, Box<dyn Error>> {
    let (blocks, threads) = (vectors::BLOCKS, vectors::THREADS);
    let mut partial = stream.alloc_zeros::<f32>(blocks as usize)?;
    let geometry = Geometry { shared_bytes: threads * 4, ..Geometry::linear(blocks, threads) };
    {
        let ((from, _from), (to, _to)) = (x.device_ptr(stream), partial.device_ptr_mut(stream));
        // SAFETY: x has as many floats as is said, `partial` a float a block, and shared memory a float a thread.
        unsafe { kernels::sum(modules.on(stream), geometry, from, to, x.len() as u32)? };
    }
    Ok(stream.clone_dtoh(&partial)?.iter().sum())
}
