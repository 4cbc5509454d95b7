//! The kernels that have a reference, as their files are: executed on this machine under a checker of races, bounds and
//! barriers, and simulated; no GPU takes part.

use plain::vectors::CHECKED;
use plain::vectors::abi::{Saxpy, SaxpyArgs, Sum, SumArgs};
use precast_core::plan::{Builder, Category};
use precast_core::{Arch, Dtype, bytemuck};
use precast_runtime::{Loading, Placement, selftest};

#[test]
fn kernels_compute_their_references_without_a_race() -> Result<(), precast_simt::CheckError> {
    println!("{}", precast_simt::check(&CHECKED, [Arch::Sm89, Arch::Sm90a])?);
    Ok(())
}

#[test]
fn the_declaration_in_rust_is_of_the_header() -> Result<(), precast_aot::abi::Stale> {
    precast_aot::abi::check("src/vectors", "src/vectors/abi.rs")
}

#[test]
fn a_plan_launches_them_on_the_simulated_gpu() {
    const VECTORS: Category = Category { rank: 0, key: "vectors", name: "vectors" };
    let bundle = plain::bundle().unwrap().of_registry(&CHECKED);
    let mut loading = Loading::sim();
    let mut plan = Builder::new(&CHECKED, loading.arch().unwrap());
    let [x, y] = ["x", "y"].map(|name| plan.persistent(name, VECTORS, Dtype::F32, 300));
    let partial = plan.persistent("partial", VECTORS, Dtype::F32, 8);
    plan.phase("step");
    plan.launch("y += 2 x", Saxpy {}, SaxpyArgs { x, y, n: 300, a: 2.0 });
    plan.launch("sum of y", Sum {}, SumArgs { x: y, partial, n: 300 });
    let plan = plan.finish();
    loading.load(&bundle, &plan).unwrap();
    let mut gpu = loading.seal(&plan, Placement::Arena).unwrap();
    gpu.write(x, bytemuck::cast_slice(&[0.5f32; 300])).unwrap();
    gpu.write(y, bytemuck::cast_slice(&[1.0f32; 300])).unwrap();
    gpu.run("step").unwrap();
    let sums: Vec<f32> = bytemuck::pod_collect_to_vec(&gpu.read(partial).unwrap());
    assert_eq!(sums, [256.0, 256.0, 88.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}

#[test]
fn the_samples_of_both_can_be_checked() -> Result<(), Box<dyn std::error::Error>> {
    let bundle = plain::bundle()?.of_registry(&CHECKED);
    assert_eq!(selftest::check(Loading::sim(), &bundle)?.launches, 6);
    Ok(())
}

#[test]
#[ignore = "needs a GPU"]
fn machine_code_computes_its_references_on_a_gpu() -> Result<(), Box<dyn std::error::Error>> {
    let bundle = plain::bundle()?.of_registry(&CHECKED);
    let checked = selftest::check(Loading::cuda(0, &bundle)?, &bundle)?;
    println!("{} launches, at most {:.1e} from their references", checked.launches, checked.worst.norm);
    Ok(())
}
