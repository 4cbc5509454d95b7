//! Blurs an image on the first GPU and counts its pixels, by kernels of two libraries; with `--features before` as
//! these were before, when one compiled its kernels by NVRTC and the other gave PTX to the driver.

use std::error::Error;
use std::time::Instant;

#[cfg(feature = "before")]
use before::{blur::Blur, histogram::Histogram};
#[cfg(not(feature = "before"))]
use blur::Blur;
use cudarc::driver::CudaContext;
#[cfg(not(feature = "before"))]
use histogram::Histogram;

const WIDTH: usize = 640;
const HEIGHT: usize = 480;

fn main() -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let context = CudaContext::new(0)?;
    // Both are loaded before either launches.
    let (blur, histogram) = (Blur::new(&context)?, Histogram::new(&context)?);
    let stream = context.new_stream()?;

    // Black, and white from the middle of each row.
    let row: Vec<f32> = (0..WIDTH).map(|x| if x < WIDTH / 2 { 0.0 } else { 1.0 }).collect();
    let image = stream.clone_htod(&row.repeat(HEIGHT))?;
    let (mut blurred, mut bytes) = (stream.alloc_zeros(image.len())?, stream.alloc_zeros(image.len())?);
    blur.rows(&stream, &image, &mut blurred, WIDTH as i32, 31)?;
    blur.scale(&stream, &mut blurred, 200.0, 20.0)?;
    blur.to_bytes(&stream, &blurred, &mut bytes)?;
    let shares = histogram.shares(&stream, &bytes)?;

    // Of 640 columns 289 are black, 289 white, and 62 between them.
    assert_eq!((shares[20], shares[220], shares.iter().sum::<u32>()), (45, 45, 90));
    println!("45 % of the pixels are black, 45 % white: known after {:.1} ms", started.elapsed().as_secs_f64() * 1e3);
    Ok(())
}
