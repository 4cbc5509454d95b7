//! Box blur of gray images, by kernels that NVRTC compiles when the program starts.

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaSlice, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};

const SOURCE: &str = include_str!("../../blur/kernels/blur.cu");
const INSTANCE: &str = "template __global__ void convert<float, unsigned char>(const float*, unsigned char*, int);";

pub struct Blur {
    blur_rows: CudaFunction,
    scale: CudaFunction,
    convert: CudaFunction,
}

impl Blur {
    pub fn new(context: &Arc<CudaContext>) -> Result<Self, Box<dyn Error>> {
        let (major, minor) = context.compute_capability()?;
        let arch = Some(&*format!("compute_{major}{minor}").leak());
        let options = CompileOptions { arch, ..CompileOptions::default() };
        let module = context.load_module(compile_ptx_with_opts(format!("{SOURCE}\n{INSTANCE}"), options)?)?;
        let function = |name: &str| module.load_function(name);
        Ok(Self {
            blur_rows: function("blur_rows")?,
            scale: function("scale")?,
            convert: function("_Z7convertIfhEvPKT_PT0_i")?,
        })
    }

    /// Blurs each row of an image of `width` columns.
    pub fn rows(
        &self,
        stream: &Arc<CudaStream>,
        image: &CudaSlice<f32>,
        blurred: &mut CudaSlice<f32>,
        width: i32,
        radius: i32,
    ) -> Result<(), Box<dyn Error>> {
        let height = image.len() as i32 / width;
        let grid = LaunchConfig {
            grid_dim: (height as u32, 1, 1),
            block_dim: (256, 1, 1),
            shared_mem_bytes: 4 * width as u32,
        };
        let mut launch = stream.launch_builder(&self.blur_rows);
        launch.arg(image).arg(blurred).arg(&width).arg(&height).arg(&radius);
        // SAFETY: two images of `height` rows, and shared memory for one.
        unsafe { launch.launch(grid)? };
        Ok(())
    }

    /// Computes `by x + to` of each pixel.
    pub fn scale(
        &self,
        stream: &Arc<CudaStream>,
        image: &mut CudaSlice<f32>,
        by: f32,
        to: f32,
    ) -> Result<(), Box<dyn Error>> {
        let n = image.len() as i32;
        let mut launch = stream.launch_builder(&self.scale);
        launch.arg(image).arg(&by).arg(&to).arg(&n);
        // SAFETY: an image of n pixels.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32))? };
        Ok(())
    }

    /// Cuts pixels to 8 bits.
    pub fn to_bytes(
        &self,
        stream: &Arc<CudaStream>,
        image: &CudaSlice<f32>,
        bytes: &mut CudaSlice<u8>,
    ) -> Result<(), Box<dyn Error>> {
        let n = image.len() as i32;
        let mut launch = stream.launch_builder(&self.convert);
        launch.arg(image).arg(bytes).arg(&n);
        // SAFETY: two images of n pixels.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32))? };
        Ok(())
    }
}
