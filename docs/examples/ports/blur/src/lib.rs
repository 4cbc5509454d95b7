//! Box blur of gray images, by kernels that are compiled ahead of time.

pub mod kernels;

use std::error::Error;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use precast_core::{Geometry, Kernels};
use precast_runtime::{Bundle, Modules};

static KERNELS: Kernels = Kernels::new("blur", &[], kernels::PLAIN);

/// Returns the machine code in this library.
pub fn bundle() -> Result<Bundle<'static, Kernels>, Box<dyn Error>> {
    Ok(precast_runtime::embedded!().bundle(&KERNELS)?)
}

pub struct Blur {
    modules: Modules,
}

impl Blur {
    pub fn new(context: &Arc<CudaContext>) -> Result<Self, Box<dyn Error>> {
        Ok(Self { modules: Modules::load(Arc::clone(context), &bundle()?, &KERNELS.examples())? })
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
        let grid = Geometry { shared_bytes: 4 * width as u32, ..Geometry::linear(height as u32, 256) };
        let ((image, _i), (blurred, _b)) = (image.device_ptr(stream), blurred.device_ptr_mut(stream));
        // SAFETY: two images of `height` rows, and shared memory for one.
        unsafe { kernels::blur_rows(self.modules.on(stream), grid, image, blurred, width, height, radius)? };
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
        let (image, _i) = image.device_ptr_mut(stream);
        let (launcher, grid) = (self.modules.on(stream), Geometry::linear((n as u32).div_ceil(1024), 1024));
        // SAFETY: an image of n pixels.
        unsafe { kernels::scale(launcher, grid, image, by, to, n)? };
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
        let ((image, _i), (bytes, _b)) = (image.device_ptr(stream), bytes.device_ptr_mut(stream));
        let (launcher, grid) = (self.modules.on(stream), Geometry::linear((n as u32).div_ceil(1024), 1024));
        // SAFETY: two images of n pixels.
        unsafe { kernels::convert_float_unsigned_char(launcher, grid, image, bytes, n)? };
        Ok(())
    }
}
