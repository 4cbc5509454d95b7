//! Gates: of normalized heads, and of outputs of attention.

use precast_kernels::abi::{
    gated_norm_bwd_params, gated_norm_dgrad_params, gated_norm_fwd_params, output_gate_bwd_params,
    output_gate_fwd_params,
};

use super::calculus::{dot, dots, sigmoid, sum};
use super::launch::Launch;
use super::rmsnorm::normalized;

/// Gates in rows of more than them: the columns of a row that are gates.
struct Gates {
    columns: usize,
    own: Vec<usize>,
}

impl Gates {
    fn of(&self, rows: &[f64]) -> Vec<f64> {
        rows.chunks(self.columns).flat_map(|row| self.own.iter().map(|column| row[*column])).collect()
    }

    /// Asserts the gradient of the gates, of losses of whole rows, and that what is between them is as before.
    fn have_gradient(&self, launch: &Launch, [rows, gradient]: [&str; 2], losses: impl Fn(&[f64]) -> Vec<f64>) {
        let (rows, mut kept, mut after) = (launch.before(rows), launch.before(gradient), launch.after(gradient));
        for rows in [&mut kept, &mut after] {
            rows.chunks_mut(self.columns).for_each(|row| self.own.iter().for_each(|column| row[*column] = 0.0));
        }
        assert_eq!(after, kept);
        launch.is_gradient(gradient, &rows, |rows| sum(&losses(&self.of(rows)), &dots(rows, &kept, self.columns)));
    }
}

/// The heads of tokens, normalized and gated.
struct GatedNorm {
    d: usize,
    heads: usize,
    eps: f64,
    gates: Gates,
}

impl GatedNorm {
    fn new(launch: &Launch, eps: f32, [heads, columns, first]: [u32; 3]) -> Self {
        let (d, [heads, columns, first]) = (launch.size("d"), [heads, columns, first].map(|size| size as usize));
        Self { d, heads, eps: f64::from(eps), gates: Gates { columns, own: (first..first + heads * d).collect() } }
    }

    fn forward(&self, x: &[f64], gates: &[f64], gamma: &[f64]) -> Vec<f64> {
        let gated = normalized(x, gamma, self.eps).0.into_iter().zip(gates);
        gated.map(|(n, gate)| n * (gate * sigmoid(*gate))).collect()
    }

    fn have_gradients(&self, launch: &Launch) {
        let [x, gates, dy, gamma] = ["x", "gates", "dy", "gamma"].map(|name| launch.before(name));
        let gates = self.gates.of(&gates);
        launch.is_gradient("dx", &x, |x| dots(&self.forward(x, &gates, &gamma), &dy, self.d));
        self.gates.have_gradient(launch, ["gates", "dgates"], |gates| {
            dots(&self.forward(&x, gates, &gamma), &dy, self.heads * self.d)
        });
    }
}

pub fn norm_fwd(launch: &mut Launch) {
    let gated_norm_fwd_params { eps, heads, gate_columns, column, .. } = launch.params();
    let norm = GatedNorm::new(launch, eps, [heads, gate_columns, column]);
    let gates = norm.gates.of(&launch.before("gates"));
    launch.is("y", &norm.forward(&launch.before("x"), &gates, &launch.before("gamma")));
}

pub fn norm_dgrad(launch: &mut Launch) {
    let gated_norm_dgrad_params { eps, heads, gate_columns, column, .. } = launch.params();
    GatedNorm::new(launch, eps, [heads, gate_columns, column]).have_gradients(launch);
}

pub fn norm_bwd(launch: &mut Launch) {
    let gated_norm_bwd_params { eps, tokens, heads, gate_columns, column, rows, .. } = launch.params();
    let norm = GatedNorm::new(launch, eps, [heads, gate_columns, column]);
    norm.have_gradients(launch);
    let [x, gates, dy, gamma] = ["x", "gates", "dy", "gamma"].map(|name| launch.before(name));
    let (gates, group) = (norm.gates.of(&gates), rows as usize * norm.heads * norm.d);
    launch.is_gradient("dgamma_partial", &gamma.repeat(tokens.div_ceil(rows) as usize), |gammas| {
        let groups = x.chunks(group).zip(gates.chunks(group)).zip(dy.chunks(group));
        let of_group = |(gamma, ((x, gates), dy))| dot(&norm.forward(x, gates, gamma), dy);
        gammas.chunks(norm.d).zip(groups).map(of_group).collect()
    });
}

/// The gates behind the queries of rows.
fn output_gates(launch: &Launch, [heads, row_heads]: [u32; 2]) -> Gates {
    let (d, [heads, row_heads]) = (launch.size("d"), [heads, row_heads].map(|heads| heads as usize));
    Gates { columns: row_heads * d, own: (0..heads).flat_map(|head| (2 * head + 1) * d..(2 * head + 2) * d).collect() }
}

fn gated(o: &[f64], gates: &[f64]) -> Vec<f64> {
    o.iter().zip(gates).map(|(o, gate)| o * sigmoid(*gate)).collect()
}

pub fn output_fwd(launch: &mut Launch) {
    let output_gate_fwd_params { heads, row_heads, .. } = launch.params();
    let gates = output_gates(launch, [heads, row_heads]).of(&launch.before("packed"));
    launch.is("y", &gated(&launch.before("o"), &gates));
}

pub fn output_bwd(launch: &mut Launch) {
    let output_gate_bwd_params { heads, row_heads, .. } = launch.params();
    let gates = output_gates(launch, [heads, row_heads]);
    let [o, packed, dy] = ["o", "packed", "dy"].map(|name| launch.before(name));
    let of_packed = gates.of(&packed);
    launch.is_gradient("d_o", &o, |o| dots(&gated(o, &of_packed), &dy, 1));
    gates.have_gradient(launch, ["packed", "dpacked"], |gates| {
        dots(&gated(&o, gates), &dy, heads as usize * launch.size("d"))
    });
}
