use precast_kernels::abi::rope_params;

use super::launch::Launch;

/// Elements i and i + d/2 of a head are a complex number that turns by the angle of position and i, or back.
fn rope(launch: &mut Launch, direction: f64) {
    let (d, rope_params { seq_len, heads, row_stride, .. }) = (launch.size("d"), launch.params());
    let positions = launch.before("position");
    let angles: Vec<f64> = (0..seq_len as usize * d / 2).map(|index| (index as f64 * 0.37).sin() * 3.0).collect();
    launch.set("cos", &angles.iter().map(|angle| angle.cos()).collect::<Vec<_>>());
    launch.set("sin", &angles.iter().map(|angle| angle.sin()).collect::<Vec<_>>());
    let mut x = launch.before("x");
    for (token, row) in x.chunks_mut(row_stride as usize).enumerate() {
        for head in row.chunks_mut(d).take(heads as usize) {
            for i in 0..d / 2 {
                let turn = direction * angles[positions[token] as usize * (d / 2) + i];
                let (length, own) = (head[i].hypot(head[i + d / 2]), head[i + d / 2].atan2(head[i]));
                (head[i], head[i + d / 2]) = (length * (own + turn).cos(), length * (own + turn).sin());
            }
        }
    }
    launch.is("x", &x);
}

pub fn fwd(launch: &mut Launch) {
    rope(launch, 1.0);
}

pub fn bwd(launch: &mut Launch) {
    rope(launch, -1.0);
}
