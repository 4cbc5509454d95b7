use precast_kernels::Key;
use precast_kernels::abi::rope_params;

use super::launch::{Launch, size};

/// Elements i and i + d/2 of a head are a complex number that turns by the angle of position and i, or back.
fn rope(key: &Key, direction: f64) {
    let (tokens, seq_len, heads, d) = (15, 5, 3, size(key, "d"));
    let stride = (heads as usize + 2) * d;
    let params = rope_params { tokens, seq_len, heads, row_stride: stride as u32, ..Default::default() };
    let angle = |index: usize| (index as f64 * 0.37).sin() * 3.0;
    let launch = Launch::with(key, params, |launch| {
        let angles = || (0..launch.before("cos").len()).map(angle);
        vec![("cos", angles().map(f64::cos).collect()), ("sin", angles().map(f64::sin).collect())]
    });
    let mut x = launch.before("x");
    for (token, row) in x.chunks_mut(stride).enumerate() {
        for head in row.chunks_mut(d).take(heads as usize) {
            for i in 0..d / 2 {
                let turn = direction * angle(token % seq_len as usize * (d / 2) + i);
                let (length, own) = (head[i].hypot(head[i + d / 2]), head[i + d / 2].atan2(head[i]));
                (head[i], head[i + d / 2]) = (length * (own + turn).cos(), length * (own + turn).sin());
            }
        }
    }
    launch.is("x", &x);
}

pub fn fwd(key: &Key) {
    rope(key, 1.0);
}

pub fn bwd(key: &Key) {
    rope(key, -1.0);
}
