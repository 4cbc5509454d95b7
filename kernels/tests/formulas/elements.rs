//! What treats each element by itself.

use precast_kernels::Key;
use precast_kernels::abi::{adamw_params, add_params, cast_params, fill_params};

use super::launch::{Launch, field};

pub fn adamw(key: &Key) {
    let (n, decayed) = (37u64, 20);
    let (beta1, beta2, eps, decay) = (0.9f32, 0.999f32, 1e-8f32, 0.1f32);
    let params = adamw_params { n, decayed, beta1, beta2, eps, weight_decay: decay, ..Default::default() };
    let launch = Launch::new(key, params);
    let [beta1, beta2, eps, decay] = [beta1, beta2, eps, decay].map(f64::from);
    let update: Vec<f64> = launch.before("update").iter().map(|word| f64::from(f32::from_bits(*word as u32))).collect();
    let (lr, c1, c2, clip) = (update[0], update[1], update[2], launch.before("metrics")[3]);
    let (grad, master) = (launch.before("grad"), launch.before("master"));
    let (m, v) = (launch.before("m"), launch.before("v"));
    let g = |i: usize| clip * grad[i];
    let new_m: Vec<f64> = (0..37).map(|i| beta1 * m[i] + (1.0 - beta1) * g(i)).collect();
    let new_v: Vec<f64> = (0..37).map(|i| beta2 * v[i] + (1.0 - beta2) * g(i) * g(i)).collect();
    let moved = |i: usize| {
        let decay = if (i as u64) < decayed { decay * master[i] } else { 0.0 };
        master[i] - lr * (decay + (new_m[i] / c1) / ((new_v[i] / c2).sqrt() + eps))
    };
    launch.is("master", &(0..37).map(moved).collect::<Vec<_>>());
    launch.is("m", &new_m);
    launch.is("v", &new_v);
}

pub fn add(key: &Key) {
    let launch = Launch::new(key, add_params { n: 97, ..Default::default() });
    let sums = launch.before("x").into_iter().zip(launch.before("y")).map(|(x, y)| x + y);
    launch.is("y", &sums.collect::<Vec<_>>());
}

/// To bf16, to nearest even: no other value is nearer, and of two that are as near its last bit is 0.
pub fn cast(key: &Key) {
    let launch = Launch::new(key, cast_params { n: 4001, ..Default::default() });
    for (x, y) in launch.before("x").into_iter().zip(launch.after("y")) {
        if field(key, "to") == "f32" {
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

pub fn fill(key: &Key) {
    let launch = Launch::new(key, fill_params { n: 97, value: 2.5, ..Default::default() });
    let keeps = field(key, "first") == "true" && launch.micro().1;
    launch.is("y", &if keeps { launch.before("y") } else { vec![2.5; 97] });
}
