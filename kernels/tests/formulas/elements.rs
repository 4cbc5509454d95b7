//! Formulas of one element at a time.

use precast_kernels::abi::{adamw_params, fill_params, scale_params};

use super::calculus::sum;
use super::launch::Launch;

pub fn adamw(launch: &mut Launch) {
    let adamw_params { decayed, beta1, beta2, eps, weight_decay, .. } = launch.params();
    let [beta1, beta2, eps, decay] = [beta1, beta2, eps, weight_decay].map(f64::from);
    let update: Vec<f64> = launch.before("update").iter().map(|word| f64::from(f32::from_bits(*word as u32))).collect();
    let (lr, c1, c2, clip) = (update[0], update[1], update[2], launch.before("metrics")[3]);
    let (grad, master) = (launch.before("grad"), launch.before("master"));
    let (m, v) = (launch.before("m"), launch.before("v"));
    let g = |i: usize| clip * grad[i];
    let new_m: Vec<f64> = (0..m.len()).map(|i| beta1 * m[i] + (1.0 - beta1) * g(i)).collect();
    let new_v: Vec<f64> = (0..v.len()).map(|i| beta2 * v[i] + (1.0 - beta2) * g(i) * g(i)).collect();
    let moved = |i: usize| {
        let decay = if launch.goes("decays", (i as u64) < decayed) { decay * master[i] } else { 0.0 };
        master[i] - lr * (decay + (new_m[i] / c1) / ((new_v[i] / c2).sqrt() + eps))
    };
    launch.is("master", &(0..master.len()).map(moved).collect::<Vec<_>>());
    launch.is("m", &new_m);
    launch.is("v", &new_v);
}

pub fn add(launch: &mut Launch) {
    launch.is("y", &sum(&launch.before("x"), &launch.before("y")));
}

/// To bf16, to nearest even: no other value is nearer, and of two that are as near its last bit is 0.
pub fn cast(launch: &mut Launch) {
    for (x, y) in launch.before("x").into_iter().zip(launch.after("y")) {
        if launch.goes("copies", launch.field("to") == "f32") {
            assert_eq!(x, y);
            continue;
        }
        let bits = (y as f32).to_bits();
        assert_eq!(bits & 0xFFFF, 0, "{y} is no bf16");
        let distance = |bits: u32| (f64::from(f32::from_bits(bits)) - x).abs();
        let nearest = distance(bits + 0x1_0000).min(distance(bits - 0x1_0000));
        assert!(distance(bits) < nearest || distance(bits) == nearest && bits & 0x1_0000 == 0, "{x} became {y}");
    }
}

pub fn scale(launch: &mut Launch) {
    let scale_params { factor, .. } = launch.params();
    let scaled: Vec<f64> = launch.before("x").iter().map(|x| f64::from(factor) * x).collect();
    launch.is("y", &if launch.flag("residual") { sum(&scaled, &launch.before("residual")) } else { scaled });
}

pub fn fill(launch: &mut Launch) {
    let fill_params { value, .. } = launch.params();
    let keeps = launch.flag("first") && launch.goes("later", launch.is_later());
    let before = launch.before("y");
    launch.is("y", &if keeps { before } else { vec![f64::from(value); before.len()] });
}
