//! Histograms of pixels of 8 bits, by PTX that the driver compiles when the program starts.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;

const PTX: &str = include_str!("../../histogram/kernels/histogram.ptx");

pub struct Histogram {
    histogram: CudaFunction,
    scale: CudaFunction,
}

impl Histogram {
    pub fn new(context: &Arc<CudaContext>) -> Result<Self, Box<dyn Error>> {
        let module = context.load_module(Ptx::from_src(PTX))?;
        Ok(Self { histogram: module.load_function("histogram")?, scale: module.load_function("scale")? })
    }

    /// Returns how many of each 100 pixels have each value.
    pub fn shares(&self, stream: &Arc<CudaStream>, pixels: &CudaSlice<u8>) -> Result<Vec<u32>, Box<dyn Error>> {
        let (n, each) = (pixels.len() as u64, (pixels.len() / 100) as u32);
        let mut bins = stream.alloc_zeros::<u32>(256)?;
        let mut launch = stream.launch_builder(&self.histogram);
        launch.arg(pixels).arg(&mut bins).arg(&n);
        // SAFETY: n pixels and 256 bins.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32))? };
        let mut launch = stream.launch_builder(&self.scale);
        launch.arg(&mut bins).arg(&each);
        // SAFETY: 256 bins.
        unsafe { launch.launch(LaunchConfig { grid_dim: (1, 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 })? };
        Ok(stream.clone_dtoh(&bins)?)
    }
}
