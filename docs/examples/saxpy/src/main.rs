//! Computes `y += 2 x` and then `x += -1 y` on a GPU (`cargo run cuda:0`) or on the simulated one (`cargo run`).

mod saxpy;

use precast_core::plan::{Builder, Category};
use precast_core::{Dtype, bytemuck};
use precast_runtime::{Loading, Placement};
use saxpy::KERNELS;
use saxpy::abi::{Saxpy, SaxpyArgs};

const VECTORS: Category = Category { rank: 0, key: "vectors", name: "vectors" };
const N: u32 = 5000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bundle = precast_runtime::embedded!().bundle(&KERNELS)?;
    let mut loading = match std::env::args().nth(1).as_deref() {
        None => Loading::sim(),
        Some("cuda:0") => Loading::cuda(0, &bundle)?,
        Some(other) => return Err(format!("no device {other}: cuda:0, or none for the simulated GPU").into()),
    };
    let mut plan = Builder::new(&KERNELS, loading.arch()?);
    let [x, y] = ["x", "y"].map(|name| plan.persistent(name, VECTORS, Dtype::F32, N.into()));
    plan.phase("step");
    plan.launch("y += 2 x", Saxpy { x: Dtype::F32 }, SaxpyArgs { x, y, n: N, a: 2.0 });
    plan.launch("x += -1 y", Saxpy { x: Dtype::F32 }, SaxpyArgs { x: y, y: x, n: N, a: -1.0 });
    let plan = plan.finish();

    loading.load(&bundle, &plan)?;
    println!("{}", loading.device().name);
    // From here on nothing is loaded or allocated.
    let mut gpu = loading.seal(&plan, Placement::Arena)?;
    let ramp: Vec<f32> = (0..N).map(|i| i as f32).collect();
    gpu.write(x, bytemuck::cast_slice(&ramp))?;
    gpu.write(y, bytemuck::cast_slice(&[1.0f32; N as usize]))?;
    gpu.run("step")?;
    for (name, tensor) in [("x", x), ("y", y)] {
        let values: Vec<f32> = bytemuck::pod_collect_to_vec(&gpu.read(tensor)?);
        println!("{name} = {:?} ... {:?}", &values[..4], values[N as usize - 1]);
    }
    Ok(())
}
