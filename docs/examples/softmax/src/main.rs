//! Turns rows of numbers into probabilities on a GPU (`cargo run cuda:0`) or on the simulated one (`cargo run`).

mod softmax;

use precast_core::plan::{Builder, Category};
use precast_core::{Dtype, bytemuck};
use precast_runtime::{Loading, Placement};
use softmax::KERNELS;
use softmax::abi::{Softmax, SoftmaxArgs};

const MATRICES: Category = Category { rank: 0, key: "matrices", name: "matrices" };
const COLUMNS: u32 = 1000;
/// Each the number of a column: equal ones, ones that grow, and one that is larger than exp can take.
const ROWS: [fn(u32) -> f32; 3] =
    [|_| 5.0, |column| 0.01 * column as f32, |column| if column == 7 { 1e4 } else { 0.0 }];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bundle = precast_runtime::embedded!().bundle(&KERNELS)?;
    let mut loading = match std::env::args().nth(1).as_deref() {
        None => Loading::sim(),
        Some("cuda:0") => Loading::cuda(0, &bundle)?,
        Some(other) => return Err(format!("no device {other}: cuda:0, or none for the simulated GPU").into()),
    };
    let (rows, x) = (ROWS.len() as u32, Dtype::F32);
    let mut plan = Builder::new(&KERNELS, loading.arch()?);
    let [logits, probabilities] = ["logits", "probabilities"]
        .map(|name| plan.persistent(name, MATRICES, x, u64::from(rows) * u64::from(COLUMNS)));
    plan.phase("step");
    let args = SoftmaxArgs { x: logits, y: probabilities, rows };
    plan.launch("softmax", Softmax { columns: COLUMNS, x }, args);
    let plan = plan.finish();

    loading.load(&bundle, &plan)?;
    println!("{}", loading.device().name);
    // From here on nothing is loaded or allocated.
    let mut gpu = loading.seal(&plan, Placement::Arena)?;
    let numbers: Vec<f32> = ROWS.iter().flat_map(|row| (0..COLUMNS).map(row)).collect();
    gpu.write(logits, bytemuck::cast_slice(&numbers))?;
    gpu.run("step")?;
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(&gpu.read(probabilities)?);
    for (index, row) in values.chunks(COLUMNS as usize).enumerate() {
        let largest = row.iter().copied().fold(0.0, f32::max);
        println!("row {index}: largest {largest:.4}, sum {:.4}", row.iter().sum::<f32>());
    }
    Ok(())
}
