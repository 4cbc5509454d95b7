//! The program's launches on a machine without a GPU: under a stand-in for libcuda whose kernels are their host
//! references.

use std::sync::LazyLock;

use precast_runtime::Modules;

/// Loaded once in this process, as in the program.
static MODULES: LazyLock<Modules> = LazyLock::new(|| {
    precast_libcuda::install(&with_cudarc::bundle().unwrap());
    with_cudarc::load(0).unwrap()
});

#[test]
fn a_step_is_smoothed_on_a_stream() {
    let stream = MODULES.context().new_stream().unwrap();
    let x = stream.clone_htod(&[0.0f32, 0.0, 0.0, 16.0, 16.0, 16.0]).unwrap();
    let mut y = stream.alloc_zeros(6).unwrap();
    with_cudarc::smooth(&MODULES, &stream, &x, &mut y).unwrap();
    assert_eq!(stream.clone_dtoh(&y).unwrap(), [0.0, 0.0, 4.0, 12.0, 16.0, 16.0]);
}

#[test]
fn what_one_stream_writes_another_reads() {
    let [first, second] = [(); 2].map(|()| MODULES.context().new_stream().unwrap());
    let mut expected: Vec<f32> = (0..1000u32).map(|i| (i * i % 97) as f32).collect();
    let mut x = first.clone_htod(&expected).unwrap();
    let mut y = first.alloc_zeros(1000).unwrap();
    for _ in 0..10 {
        with_cudarc::smooth(&MODULES, &first, &x, &mut y).unwrap();
        with_cudarc::smooth(&MODULES, &second, &y, &mut x).unwrap();
        for _ in 0..2 {
            let neighbors = |i: usize| expected[i.saturating_sub(1)] + expected[(i + 1).min(999)];
            expected = (0..1000).map(|i| 0.25 * neighbors(i) + 0.5 * expected[i]).collect();
        }
    }
    assert_eq!(second.clone_dtoh(&x).unwrap(), expected);
}

#[test]
fn a_load_after_a_launch_is_refused() {
    a_step_is_smoothed_on_a_stream();
    let refused = with_cudarc::load(0).unwrap_err().to_string();
    assert!(refused.contains("load every bundle of the program before the first launch"), "{refused}");
}
