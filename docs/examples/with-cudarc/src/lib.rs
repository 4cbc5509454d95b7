//! A kernel of one's own on the streams and buffers of cudarc: compiled ahead of time, verified, and loaded before
//! anything is launched.

pub mod smooth;

use std::error::Error;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use precast_core::Dtype;
use precast_runtime::{Bundle, DriverError, Modules};
use smooth::KERNELS;
use smooth::abi::{Smooth, SmoothArgs};

/// Returns the machine code in this program.
pub fn bundle() -> Result<Bundle<'static>, Box<dyn Error>> {
    Ok(precast_runtime::embedded!().bundle(&KERNELS)?)
}

/// Loads every kernel of this program into the context of a GPU, before the first launch.
pub fn load(gpu: u32) -> Result<Modules, Box<dyn Error>> {
    Ok(Modules::open(gpu, &bundle()?, &KERNELS.examples())?)
}

/// Queues the smoothing of `x` into `y`, of as many elements, on a stream.
pub fn smooth(
    modules: &Modules,
    stream: &CudaStream,
    x: &CudaSlice<f32>,
    y: &mut CudaSlice<f32>,
) -> Result<(), DriverError> {
    assert_eq!(x.len(), y.len());
    let n = x.len() as u64;
    // The guards order streams that share a buffer; they live until the launch is queued.
    let ((x, _x), (y, _y)) = (x.device_ptr(stream), y.device_ptr_mut(stream));
    // SAFETY: two buffers of n elements of the modules' context, which cudarc frees after the launch.
    unsafe { modules.launch(stream, Smooth { x: Dtype::F32 }, SmoothArgs { x, y, n }) }
}
