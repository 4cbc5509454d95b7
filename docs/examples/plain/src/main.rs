//! Launches each of the five kernels on the first GPU, and compares what they computed.

use std::error::Error;

use cudarc::driver::{DevicePtr, DevicePtrMut};
use plain::kernels::{affine, float4, gather, gelu, transform};
use precast_core::Geometry;

fn main() -> Result<(), Box<dyn Error>> {
    let modules = plain::load(0)?;
    println!("{}: {} kernels", modules.device().name, modules.loaded().len());
    let stream = modules.context().new_stream()?;

    let ramp: Vec<f32> = (0..1000u16).map(f32::from).collect();
    let (x, mut y) = (stream.clone_htod(&ramp)?, stream.clone_htod(&[1.0f32; 1000])?);
    plain::saxpy(&modules, &stream, 2.0, &x, &mut y)?;
    assert!(stream.clone_dtoh(&y)?.iter().zip(&ramp).all(|(y, x)| *y == 2.0 * x + 1.0));
    assert_eq!(plain::sum(&modules, &stream, &y)?, 1_000_000.0);

    let mut pixels = stream.clone_htod(&[1.0f32, 2.0, 3.0, 4.0])?;
    let map = affine { scale: [1.0, 2.0, 3.0, 4.0], shift: [0.5; 4], steps: 2 };
    let bias = float4 { x: 1.0, y: 2.0, z: 3.0, w: 4.0 };
    {
        let (y, _y) = pixels.device_ptr_mut(&stream);
        // SAFETY: one pixel of four floats.
        unsafe { transform(modules.on(&stream), Geometry::linear(1, 32), map, 1, bias, y)? };
    }
    assert_eq!(stream.clone_dtoh(&pixels)?, [4.0, 15.5, 41.0, 86.5]);

    let x = stream.clone_htod(&[-1.0f64, 0.0, 2.0])?;
    let mut y = stream.alloc_zeros::<f64>(3)?;
    {
        let ((x, _x), (y, _y)) = (x.device_ptr(&stream), y.device_ptr_mut(&stream));
        // SAFETY: three doubles each.
        unsafe { gelu(modules.on(&stream), Geometry::linear(1, 32), x, y, 3)? };
    }
    let near = |(a, b): (&f64, &f64)| (a - b).abs() < 1e-12;
    assert!(stream.clone_dtoh(&y)?.iter().zip(&[-0.158_655_253_931_457, 0.0, 1.954_499_736_103_642]).all(near));

    let (x, index) = (stream.clone_htod(&ramp)?, stream.clone_htod(&[1i64, -1, 0])?);
    let mut rows = stream.clone_htod(&[7.0f32; 6])?;
    {
        let ((x, _x), (index, _i), (y, _y)) =
            (x.device_ptr(&stream), index.device_ptr(&stream), rows.device_ptr_mut(&stream));
        // SAFETY: three rows of two floats, of rows that x has.
        unsafe { gather(modules.on(&stream), Geometry::linear(2, 32), x, index, y, 3, 2, true)? };
    }
    assert_eq!(stream.clone_dtoh(&rows)?, [2.0, 3.0, 0.0, 0.0, 0.0, 1.0]);
    println!("saxpy, sum, transform, gelu and gather computed what they have to");
    Ok(())
}
