//! Histograms of pixels of 8 bits, by PTX that is assembled ahead of time.

mod kernels;

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use precast_core::{Geometry, Kernels};
use precast_runtime::{Bundle, Modules};

static KERNELS: Kernels = Kernels::new("histogram", &[], kernels::PLAIN);

/// Returns the machine code in this library.
pub fn bundle() -> Result<Bundle<'static, Kernels>, Box<dyn Error>> {
    Ok(precast_runtime::embedded!().bundle(&KERNELS)?)
}

pub struct Histogram {
    modules: Modules,
}

impl Histogram {
    pub fn new(context: &Arc<CudaContext>) -> Result<Self, Box<dyn Error>> {
        Ok(Self { modules: Modules::load(Arc::clone(context), &bundle()?, &KERNELS.examples())? })
    }

    /// Returns how many of each 100 pixels have each value.
    pub fn shares(&self, stream: &Arc<CudaStream>, pixels: &CudaSlice<u8>) -> Result<Vec<u32>, Box<dyn Error>> {
        let (n, each) = (pixels.len() as u64, (pixels.len() / 100) as u32);
        let mut bins = stream.alloc_zeros::<u32>(256)?;
        {
            let ((pixels, _p), (bins, _b)) = (pixels.device_ptr(stream), bins.device_ptr_mut(stream));
            let launcher = self.modules.on(stream);
            // SAFETY: n pixels and 256 bins.
            unsafe {
                kernels::histogram(launcher, Geometry::linear((n as u32).div_ceil(1024), 1024), pixels, bins, n)?
            };
            // SAFETY: 256 bins.
            unsafe { kernels::scale(launcher, Geometry::linear(1, 256), bins, each)? };
        }
        Ok(stream.clone_dtoh(&bins)?)
    }
}
