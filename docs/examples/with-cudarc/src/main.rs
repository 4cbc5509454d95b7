//! Smooths a step twice, on the first GPU.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let modules = with_cudarc::load(0)?;
    println!("{}", modules.device().name);
    let stream = modules.context().new_stream()?;
    let mut x = stream.clone_htod(&[0.0f32, 0.0, 0.0, 16.0, 16.0, 16.0])?;
    let mut y = stream.alloc_zeros(x.len())?;
    with_cudarc::smooth(&modules, &stream, &x, &mut y)?;
    with_cudarc::smooth(&modules, &stream, &y, &mut x)?;
    println!("{:?}", stream.clone_dtoh(&x)?);
    Ok(())
}
