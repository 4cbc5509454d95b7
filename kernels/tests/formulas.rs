//! Every host reference against its formula in f64, written from the formula alone. Gradients are differences of the
//! forward formula, so that a reference and a kernel that share a mistake do not agree with it.

use std::collections::BTreeSet;

use bytemuck::Pod;
use precast_kernels::abi::{
    MASKED_TOKEN, adamw_params, attention_bwd_params, attention_delta_params, attention_fwd_params, cast_params,
    column_sum_finish_params, column_sum_partial_params, embedding_bwd_params, embedding_fwd_params, fill_params,
    gemm_dgrad_params, gemm_fwd_params, gemm_swiglu_params, gemm_wgrad_params, grad_norm_finish_params,
    grad_norm_partial_params, head_ce_params, head_distill_params, head_jsd_params, head_metrics_params,
    head_nll_params, lora_dgrad_a_params, lora_dgrad_b_params, lora_fwd_a_params, lora_fwd_b_params, lora_part,
    lora_wgrad_params, rmsnorm_bwd_params, rmsnorm_dgrad_params, rmsnorm_fwd_params, rope_params, swiglu_bwd_params,
    swiglu_fwd_params,
};
use precast_kernels::check::Case;
use precast_kernels::host::Buffer;
use precast_kernels::{Dtype, Format, Key, OPS, examples};

/// An operation and its check.
type Formula = (&'static str, fn(&Key));

const FORMULAS: [Formula; 33] = [
    ("adamw.update", adamw),
    ("attention.bwd", attention_bwd),
    ("attention.delta", attention_delta),
    ("attention.fwd", attention_fwd),
    ("cast", cast),
    ("column_sum.finish", column_sum_finish),
    ("column_sum.partial", column_sum_partial),
    ("embedding.bwd", embedding_bwd),
    ("embedding.fwd", embedding_fwd),
    ("fill", fill),
    ("gemm.dgrad", gemm_dgrad),
    ("gemm.fwd", gemm_fwd),
    ("gemm.swiglu", gemm_swiglu),
    ("gemm.wgrad", gemm_wgrad),
    ("grad_norm.finish", grad_norm_finish),
    ("grad_norm.partial", grad_norm_partial),
    ("head.ce", head_ce),
    ("head.distill", head_distill),
    ("head.jsd", head_jsd),
    ("head.metrics", head_metrics),
    ("head.nll", head_nll),
    ("lora.dgrad_a", lora_dgrad_a),
    ("lora.dgrad_b", lora_dgrad_b),
    ("lora.fwd_a", lora_fwd_a),
    ("lora.fwd_b", lora_fwd_b),
    ("lora.wgrad", lora_wgrad),
    ("rmsnorm.bwd", rmsnorm_bwd),
    ("rmsnorm.dgrad", rmsnorm_dgrad),
    ("rmsnorm.fwd", rmsnorm_fwd),
    ("rope.bwd", rope_bwd),
    ("rope.fwd", rope_fwd),
    ("swiglu.bwd", swiglu_bwd),
    ("swiglu.fwd", swiglu_fwd),
];

/// Operations with a test of their own: `tests/blocks.rs` has ggml's values, `tests/qk_norm.rs` the formula in f64.
const ELSEWHERE: [&str; 4] = ["dequant", "qk_norm.bwd", "qk_norm.dgrad", "qk_norm.fwd"];

#[test]
fn every_reference_is_its_formula() {
    let here: BTreeSet<&str> = FORMULAS.iter().map(|(op, _)| *op).chain(ELSEWHERE).collect();
    for op in OPS {
        assert!(here.contains(op.name), "{} has no formula here", op.name);
    }
    for (op, check) in FORMULAS {
        let keys = examples().into_iter().filter(|key| key.op() == op && is_plain(key));
        let checked = keys.map(|key| check(&key)).count();
        assert!(checked > 0, "{op} has no example in f32");
    }
}

/// Whether nothing is rounded to bf16 or stored in blocks: what is left is the formula. A cast is what it rounds.
fn is_plain(key: &Key) -> bool {
    let params = key.kernel().samples().pop().expect("a kernel has samples");
    let formats = key.kernel().operands(&params).into_iter().map(|operand| operand.format);
    key.op() == "cast" || formats.into_iter().all(|format| format == Dtype::F32 || format == Dtype::U32)
}

/// A field of a key.
fn field(key: &Key, name: &str) -> String {
    let fields = key.text().split_once('{').expect("a key has fields").1.trim_end_matches('}');
    let value = fields.split(',').find_map(|pair| pair.split_once('=').filter(|(own, _)| *own == name));
    value.unwrap_or_else(|| panic!("{key} has no {name}")).1.to_owned()
}

fn size(key: &Key, name: &str) -> usize {
    field(key, name).parse().expect("a number")
}

/// A launch by the reference: what each operand holds before and after it. Numbers are u32 where an operand is.
struct Launch {
    case: Case,
    after: Vec<Buffer>,
}

impl Launch {
    fn new<P: Pod>(key: &Key, params: P) -> Self {
        Self::with(key, params, |_| Vec::new())
    }

    /// With operands that follow from others.
    fn with<P: Pod>(key: &Key, params: P, derived: impl FnOnce(&Self) -> Vec<(&'static str, Vec<f64>)>) -> Self {
        let mut launch = Self { case: Case::new(key, bytemuck::bytes_of(&params), 7), after: Vec::new() };
        for (name, values) in derived(&launch) {
            let bytes: Vec<u8> = values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect();
            let index = launch.index(name);
            assert_eq!(launch.case.before[index].len(), bytes.len(), "{name}");
            launch.case.before[index] = Buffer::from(&bytes[..]);
        }
        launch.after = launch.case.reference();
        launch
    }

    fn index(&self, name: &str) -> usize {
        self.case.operands.iter().position(|operand| operand.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    fn numbers(&self, name: &str, buffers: &[Buffer]) -> Vec<f64> {
        let index = self.index(name);
        let words = buffers[index].chunks_exact(self.case.operands[index].format.bytes(1) as usize);
        let number = |word: &[u8]| match self.case.operands[index].format {
            Format::Dense(Dtype::Bf16) => f64::from(half::bf16::from_le_bytes([word[0], word[1]])),
            Format::Dense(Dtype::F32) => f64::from(f32::from_le_bytes(word.try_into().expect("four bytes"))),
            _ => f64::from(u32::from_le_bytes(word.try_into().expect("four bytes"))),
        };
        words.map(number).collect()
    }

    fn before(&self, name: &str) -> Vec<f64> {
        self.numbers(name, &self.case.before)
    }

    fn after(&self, name: &str) -> Vec<f64> {
        self.numbers(name, &self.after)
    }

    /// `loss_scale`, and whether gradients are added to.
    fn micro(&self) -> (f64, bool) {
        let words = self.before("micro");
        (f64::from(f32::from_bits(words[0] as u32)), words[1] != 0.0)
    }

    /// What f32 explains of a difference in norm.
    fn is(&self, name: &str, expected: &[f64]) {
        let found = self.after(name);
        assert_eq!(found.len(), expected.len(), "{}: {name}", self.case.key);
        let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
        let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| a - b));
        let distance = difference / norm(&mut expected.iter().copied()).max(1e-30);
        assert!(difference == 0.0 || distance <= 2e-6, "{}: {name} is {distance:e} from its formula", self.case.key);
    }
}

/// The gradient of a function by central differences.
fn gradient(at: &[f64], mut function: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let mut at = at.to_vec();
    (0..at.len())
        .map(|index| {
            let own = at[index];
            at[index] = own + STEP;
            let above = function(&at);
            at[index] = own - STEP;
            let below = function(&at);
            at[index] = own;
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn log_sum_exp(values: &[f64]) -> f64 {
    values.iter().map(|value| value.exp()).sum::<f64>().ln()
}

/// `x` [m, k] times the transpose of `w` [n, k].
fn product(x: &[f64], w: &[f64], k: usize) -> Vec<f64> {
    x.chunks(k).flat_map(|row| w.chunks(k).map(move |feature| dot(row, feature))).collect()
}

fn transposed(x: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|column| x.iter().skip(column).step_by(columns).copied()).collect()
}

fn adamw(key: &Key) {
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

/// Sizes of an attention: rows are tokens of [query heads, key heads, value heads].
struct Attention {
    batch: usize,
    seq_len: usize,
    heads: usize,
    kv_heads: usize,
    d: usize,
    scale: f64,
}

impl Attention {
    fn of(key: &Key) -> Self {
        Self { batch: 2, seq_len: 5, heads: 4, kv_heads: 2, d: size(key, "d"), scale: 0.3 }
    }

    fn head<'a>(&self, qkv: &'a [f64], token: usize, head: usize) -> &'a [f64] {
        &qkv[(token * (self.heads + 2 * self.kv_heads) + head) * self.d..][..self.d]
    }

    /// Every query's output [batch, seq_len, heads, d] and log-sum-exp [batch, heads, seq_len].
    fn forward(&self, qkv: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let mut o = vec![0.0; self.batch * self.seq_len * self.heads * self.d];
        let mut lse = vec![0.0; self.batch * self.heads * self.seq_len];
        for (batch, head) in (0..self.batch).flat_map(|batch| (0..self.heads).map(move |head| (batch, head))) {
            let group = head * self.kv_heads / self.heads;
            for query in 0..self.seq_len {
                let token = |position: usize| batch * self.seq_len + position;
                let q = self.head(qkv, token(query), head);
                let keys = (0..=query).map(|key| self.head(qkv, token(key), self.heads + group));
                let scores: Vec<f64> = keys.map(|key| self.scale * dot(q, key)).collect();
                let total = log_sum_exp(&scores);
                lse[(batch * self.heads + head) * self.seq_len + query] = total;
                for (key, score) in scores.iter().enumerate() {
                    let value = self.head(qkv, token(key), self.heads + self.kv_heads + group);
                    let out = &mut o[(token(query) * self.heads + head) * self.d..][..self.d];
                    out.iter_mut().zip(value).for_each(|(out, value)| *out += (score - total).exp() * value);
                }
            }
        }
        (o, lse)
    }

    /// Sums of each query's output times its gradient, [batch, heads, seq_len].
    fn delta(&self, o: &[f64], d_o: &[f64]) -> Vec<f64> {
        let row = |token: usize, head: usize| (token * self.heads + head) * self.d;
        let of = |batch: usize, head: usize, query: usize| {
            let at = row(batch * self.seq_len + query, head);
            dot(&o[at..][..self.d], &d_o[at..][..self.d])
        };
        let heads = (0..self.batch).flat_map(|batch| (0..self.heads).map(move |head| (batch, head)));
        heads
            .flat_map(|(batch, head)| (0..self.seq_len).map(move |query| (batch, head, query)))
            .map(|(b, h, q)| of(b, h, q))
            .collect()
    }
}

fn attention_fwd(key: &Key) {
    let sizes = Attention::of(key);
    let launch = Launch::new(
        key,
        attention_fwd_params { batch: 2, seq_len: 5, heads: 4, kv_heads: 2, scale: 0.3, ..Default::default() },
    );
    let (o, lse) = sizes.forward(&launch.before("qkv"));
    launch.is("o", &o);
    launch.is("lse", &lse);
}

fn attention_delta(key: &Key) {
    let sizes = Attention::of(key);
    let launch = Launch::new(key, attention_delta_params { batch: 2, seq_len: 5, heads: 4, ..Default::default() });
    launch.is("delta", &sizes.delta(&launch.before("o"), &launch.before("d_o")));
}

fn attention_bwd(key: &Key) {
    let sizes = Attention::of(key);
    let params = attention_bwd_params { batch: 2, seq_len: 5, heads: 4, kv_heads: 2, scale: 0.3, ..Default::default() };
    let launch = Launch::with(key, params, |launch| {
        let (o, lse) = sizes.forward(&launch.before("qkv"));
        vec![("lse", lse), ("delta", sizes.delta(&o, &launch.before("d_o")))]
    });
    let d_o = launch.before("d_o");
    launch.is("dqkv", &gradient(&launch.before("qkv"), |qkv| dot(&sizes.forward(qkv).0, &d_o)));
}

/// To bf16, to nearest even: no other value is nearer, and of two that are as near its last bit is 0.
fn cast(key: &Key) {
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

fn column_sum_partial(key: &Key) {
    let (rows, n, group) = (29, 131, 8);
    let launch = Launch::new(key, column_sum_partial_params { rows, n, group, ..Default::default() });
    let x = launch.before("x");
    let sums = x.chunks((group * n) as usize).flat_map(|group| {
        transposed(group, n as usize)
            .chunks(group.len() / n as usize)
            .map(|column| column.iter().sum())
            .collect::<Vec<f64>>()
    });
    launch.is("partial", &sums.collect::<Vec<_>>());
}

fn column_sum_finish(key: &Key) {
    let launch = Launch::new(key, column_sum_finish_params { rows: 29, n: 131, ..Default::default() });
    let (_, adds) = launch.micro();
    let (partial, old) = (transposed(&launch.before("partial"), 131), launch.before("grad"));
    let sums =
        partial.chunks(29).zip(old).map(|(column, old)| column.iter().sum::<f64>() + if adds { old } else { 0.0 });
    launch.is("grad", &sums.collect::<Vec<_>>());
}

fn embedding_fwd(key: &Key) {
    let h = size(key, "h");
    let launch = Launch::new(key, embedding_fwd_params { tokens: 37, vocab: 11, ..Default::default() });
    let table = launch.before("table");
    let rows = launch.before("ids").into_iter().flat_map(|id| table[id as usize * h..][..h].to_vec());
    launch.is("y", &rows.collect::<Vec<_>>());
}

fn embedding_bwd(key: &Key) {
    let h = size(key, "h");
    let launch = Launch::new(key, embedding_bwd_params { tokens: 37, vocab: 11, ..Default::default() });
    let (dy, mut dtable) = (launch.before("dy"), launch.before("dtable"));
    for (id, row) in launch.before("sorted_ids").into_iter().zip(launch.before("sorted_positions")) {
        let gradient = &dy[row as usize * h..][..h];
        dtable[id as usize * h..][..h].iter_mut().zip(gradient).for_each(|(sum, gradient)| *sum += gradient);
    }
    launch.is("dtable", &dtable);
}

fn fill(key: &Key) {
    let launch = Launch::new(key, fill_params { n: 97, value: 2.5, ..Default::default() });
    let keeps = field(key, "first") == "true" && launch.micro().1;
    launch.is("y", &if keeps { launch.before("y") } else { vec![2.5; 97] });
}

/// Values to add to a row of features, or none.
fn added(launch: &Launch, key: &Key, name: &'static str) -> Option<Vec<f64>> {
    (field(key, name) == "true").then(|| launch.before(name))
}

fn gemm_fwd(key: &Key) {
    let (m, n, k) = (5, 7, 9);
    let launch = Launch::new(key, gemm_fwd_params { m, n, k, ..Default::default() });
    let mut y = product(&launch.before("x"), &launch.before("w"), k as usize);
    if let Some(bias) = added(&launch, key, "bias") {
        y.iter_mut().zip(bias.iter().cycle()).for_each(|(y, bias)| *y += bias);
    }
    if let Some(residual) = added(&launch, key, "residual") {
        y.iter_mut().zip(residual).for_each(|(y, residual)| *y += residual);
    }
    launch.is("y", &y);
}

/// `gate * sigmoid(gate) * up` of a row of gates and then ups.
fn gated(gate_up: &[f64]) -> Vec<f64> {
    let (gate, up) = gate_up.split_at(gate_up.len() / 2);
    gate.iter().zip(up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect()
}

fn gemm_swiglu(key: &Key) {
    let (m, n, k) = (5, 7, 9);
    let launch = Launch::new(key, gemm_swiglu_params { m, n, k, ..Default::default() });
    let mut gate_up = product(&launch.before("x"), &launch.before("w"), k as usize);
    if let Some(bias) = added(&launch, key, "bias") {
        gate_up.iter_mut().zip(bias.iter().cycle()).for_each(|(value, bias)| *value += bias);
    }
    launch.is("y", &gate_up.chunks(2 * n as usize).flat_map(gated).collect::<Vec<_>>());
}

fn gemm_dgrad(key: &Key) {
    let (m, n, k) = (5, 7, 9);
    let launch = Launch::new(key, gemm_dgrad_params { m, n, k, ..Default::default() });
    let (dy, w) = (launch.before("dy"), launch.before("w"));
    let x = vec![0.5; (m * k) as usize];
    launch.is("dx", &gradient(&x, |x| dot(&product(x, &w, k as usize), &dy)));
}

fn gemm_wgrad(key: &Key) {
    let (m, n, k) = (5, 7, 9);
    for accumulate in [0, 1] {
        let launch = Launch::new(key, gemm_wgrad_params { m, n, k, accumulate, ..Default::default() });
        let (dy, x, old) = (launch.before("dy"), launch.before("x"), launch.before("dw"));
        let mut dw = gradient(&vec![0.5; old.len()], |w| dot(&product(&x, w, k as usize), &dy));
        if accumulate == 1 || launch.micro().1 {
            dw.iter_mut().zip(old).for_each(|(dw, old)| *dw += old);
        }
        launch.is("dw", &dw);
    }
}

fn grad_norm_partial(key: &Key) {
    let launch = Launch::new(key, grad_norm_partial_params { n: 1000, group: 256, ..Default::default() });
    launch.is("partial", &launch.before("grad").chunks(256).map(|group| dot(group, group)).collect::<Vec<_>>());
}

fn grad_norm_finish(key: &Key) {
    // The clip is reached, is not reached, and there is none.
    for clip in [1.0, 1e6, 0.0] {
        let launch = Launch::new(key, grad_norm_finish_params { count: 3001, clip, ..Default::default() });
        let norm = launch.before("partial").iter().sum::<f64>().sqrt();
        let scale = if clip == 0.0 { 1.0 } else { (f64::from(clip) / (norm + 1e-6)).min(1.0) };
        let before = launch.before("metrics");
        launch.is("metrics", &[before[0], before[1], norm, scale, 0.0, before[5]]);
    }
}

const MASKED: f64 = MASKED_TOKEN as f64;

/// (divergence of teacher and student at temperature, cross entropy) of one token. The divergence is forward KL for a beta
/// of 0, reverse KL for 1, and between them that of both from their mixture.
fn losses([teacher, student]: [&[f64]; 2], target: f64, temperature: f64, beta: f64) -> (f64, f64) {
    let [p, q] = [teacher, student].map(|row| {
        let scaled: Vec<f64> = row.iter().map(|logit| logit / temperature).collect();
        let total = log_sum_exp(&scaled);
        scaled.into_iter().map(|logit| logit - total).collect::<Vec<_>>()
    });
    let kl = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a.exp() * (a - b)).sum::<f64>();
    let mixture: Vec<f64> = p.iter().zip(&q).map(|(p, q)| (beta * p.exp() + (1.0 - beta) * q.exp()).ln()).collect();
    let divergence = match beta {
        0.0 => kl(&p, &q),
        1.0 => kl(&q, &p),
        _ => beta * kl(&p, &mixture) + (1.0 - beta) * kl(&q, &mixture),
    };
    (divergence, log_sum_exp(student) - student[target as usize])
}

/// Losses of each token and the gradient of a row's logits; nothing where it is masked. With alpha 0 the teacher is not
/// looked at.
fn trained(launch: &Launch, rows: [&str; 2], [alpha, temperature, beta]: [f64; 3]) -> [Vec<f64>; 3] {
    let (loss_scale, _) = launch.micro();
    let targets = launch.before("targets");
    assert!(targets.contains(&MASKED) && targets.iter().any(|target| *target != MASKED));
    let [teacher, student] = rows.map(|name| launch.before(name));
    let vocab = student.len() / targets.len();
    let mut out = [Vec::new(), Vec::new(), Vec::new()];
    for ((teacher, student), target) in teacher.chunks(vocab).zip(student.chunks(vocab)).zip(targets) {
        if target == MASKED {
            out[0].push(0.0);
            out[1].push(0.0);
            out[2].extend(vec![0.0; vocab]);
            continue;
        }
        let (kd, ce) = losses([teacher, student], target, temperature, beta);
        out[0].push(kd);
        out[1].push(ce);
        out[2].extend(gradient(student, |student| {
            let (kd, ce) = losses([teacher, student], target, temperature, beta);
            loss_scale * (alpha * temperature * temperature * kd + (1.0 - alpha) * ce)
        }));
    }
    out
}

fn head_distill(key: &Key) {
    let (tokens, vocab, alpha, temperature) = (9, 23, 0.3f32, 1.75f32);
    let launch = Launch::new(key, head_distill_params { tokens, vocab, alpha, temperature, ..Default::default() });
    let beta = if field(key, "reverse") == "true" { 1.0 } else { 0.0 };
    let [kd, ce, gradients] =
        trained(&launch, ["teacher", "student"], [f64::from(alpha), f64::from(temperature), beta]);
    launch.is("kd", &kd);
    launch.is("ce", &ce);
    launch.is("student", &gradients);
}

fn head_jsd(key: &Key) {
    let (tokens, vocab, alpha, temperature, beta) = (9, 23, 0.3f32, 1.75f32, 0.25f32);
    let launch = Launch::new(key, head_jsd_params { tokens, vocab, alpha, temperature, beta, ..Default::default() });
    let [kd, ce, gradients] =
        trained(&launch, ["teacher", "student"], [f64::from(alpha), f64::from(temperature), f64::from(beta)]);
    launch.is("kd", &kd);
    launch.is("ce", &ce);
    launch.is("student", &gradients);
}

fn head_ce(key: &Key) {
    let launch = Launch::new(key, head_ce_params { tokens: 9, vocab: 23, ..Default::default() });
    let [_, ce, gradients] = trained(&launch, ["logits", "logits"], [0.0, 1.0, 0.0]);
    launch.is("ce", &ce);
    launch.is("logits", &gradients);
}

fn head_nll(key: &Key) {
    let launch = Launch::new(key, head_nll_params { tokens: 9, vocab: 23, ..Default::default() });
    let logits = launch.before("logits");
    let rows = logits.chunks(23).zip(launch.before("targets"));
    let nll = rows.map(|(row, target)| if target == MASKED { 0.0 } else { losses([row, row], target, 1.0, 0.0).1 });
    launch.is("nll", &nll.collect::<Vec<_>>());
}

fn head_metrics(key: &Key) {
    let launch = Launch::new(key, head_metrics_params { tokens: 301, ..Default::default() });
    let ((loss_scale, adds), before) = (launch.micro(), launch.before("metrics"));
    let mean =
        |name: &str, old: f64| loss_scale * launch.before(name).iter().sum::<f64>() + if adds { old } else { 0.0 };
    let mut expected = before.clone();
    // Without a teacher there is no divergence to add.
    let kept = if adds { before[0] } else { 0.0 };
    let kd = if field(key, "kd") == "true" { mean("kd", before[0]) } else { kept };
    (expected[0], expected[1]) = (kd, mean("ce", before[1]));
    launch.is("metrics", &expected);
}

/// An adapted part of a stack of [`LORA_N`] columns: scale, first column, columns.
const LORA_PARTS: [(f32, u32, u32); 2] = [(0.5, 1, 4), (3.0, 6, 3)];
const LORA_N: u32 = 11;
const LORA_RANK: u32 = 3;

/// The parts as a parameter block has them; `row` counts the columns before.
fn lora_parts() -> [lora_part; 3] {
    let [(a, first, columns), (b, second, rest)] = LORA_PARTS;
    [
        lora_part { scale: a, start: first, width: columns, row: 0 },
        lora_part { scale: b, start: second, width: rest, row: columns },
        lora_part::default(),
    ]
}

/// `B r` of each part into its columns, 0 elsewhere, for rows of `r` that hold the ranks of both parts.
fn lora_up(ranks: &[f64], b: &[f64], scaled: bool) -> Vec<f64> {
    let rank = LORA_RANK as usize;
    let row = |row: &[f64]| {
        let mut y = vec![0.0; LORA_N as usize];
        let mut rows = b.chunks(rank);
        for ((scale, start, width), ranks) in LORA_PARTS.into_iter().zip(row.chunks(rank)) {
            for y in &mut y[start as usize..][..width as usize] {
                *y = dot(ranks, rows.next().unwrap()) * if scaled { f64::from(scale) } else { 1.0 };
            }
        }
        y
    };
    ranks.chunks(2 * rank).flat_map(row).collect()
}

fn lora_fwd_a(key: &Key) {
    let (m, k, rank, part) = (5, 9, LORA_RANK, lora_parts());
    let launch = Launch::new(key, lora_fwd_a_params { m, k, rank, parts: 2, part, ..Default::default() });
    let mut t = product(&launch.before("x"), &launch.before("a"), k as usize);
    for row in t.chunks_mut(2 * rank as usize) {
        let (first, second) = row.split_at_mut(rank as usize);
        first.iter_mut().for_each(|t| *t *= f64::from(LORA_PARTS[0].0));
        second.iter_mut().for_each(|t| *t *= f64::from(LORA_PARTS[1].0));
    }
    launch.is("t", &t);
}

fn lora_fwd_b(key: &Key) {
    let (m, n, rank, part) = (5, LORA_N, LORA_RANK, lora_parts());
    let launch = Launch::new(key, lora_fwd_b_params { m, n, rank, parts: 2, part, ..Default::default() });
    let added = lora_up(&launch.before("t"), &launch.before("b"), false);
    launch.is("y", &launch.before("y").iter().zip(added).map(|(y, added)| y + added).collect::<Vec<_>>());
}

fn lora_dgrad_b(key: &Key) {
    let (m, n, rank, part) = (5, LORA_N, LORA_RANK, lora_parts());
    let launch = Launch::new(key, lora_dgrad_b_params { m, n, rank, parts: 2, part, ..Default::default() });
    let (dy, b) = (launch.before("dy"), launch.before("b"));
    let ranks = vec![0.5; (m * 2 * rank) as usize];
    launch.is("dt", &gradient(&ranks, |ranks| dot(&lora_up(ranks, &b, true), &dy)));
}

fn lora_dgrad_a(key: &Key) {
    let (m, k, rank) = (5, 9, 6);
    let launch = Launch::new(key, lora_dgrad_a_params { m, k, rank, ..Default::default() });
    let (dt, a, before) = (launch.before("dt"), launch.before("a"), launch.before("dx"));
    let own = gradient(&before, |x| dot(&product(x, &a, k as usize), &dt));
    launch.is("dx", &before.iter().zip(own).map(|(before, own)| before + own).collect::<Vec<_>>());
}

fn lora_wgrad(key: &Key) {
    let (m, n, columns, part) = (70, LORA_N, LORA_RANK, lora_parts());
    let params = |splits| lora_wgrad_params { m, n, columns, splits, parts: 2, part, ..Default::default() };
    let of_rows = |x: &[f64], dy: &[f64]| {
        let widths: u32 = LORA_PARTS.iter().map(|(_, _, width)| width).sum();
        gradient(&vec![0.5; (widths * columns) as usize], |b| dot(&lora_up(x, b, false), dy))
    };
    let launch = Launch::new(key, params(1));
    let mut dw = of_rows(&launch.before("x"), &launch.before("dy"));
    if launch.micro().1 {
        dw.iter_mut().zip(launch.before("dw")).for_each(|(dw, old)| *dw += old);
    }
    launch.is("dw", &dw);
    // Slices of 32 rows: one of three, and the other two.
    let launch = Launch::new(key, params(2));
    let (x, dy) = (launch.before("x"), launch.before("dy"));
    let (x, dy) = (x.split_at(32 * 2 * columns as usize), dy.split_at(32 * n as usize));
    launch.is("partial", &[of_rows(x.0, dy.0), of_rows(x.1, dy.1)].concat());
}

/// Rows divided by their root mean square, times `gamma`; and the divisors' inverses.
fn normalised(x: &[f64], gamma: &[f64], eps: f64) -> (Vec<f64>, Vec<f64>) {
    let h = gamma.len();
    let rstd: Vec<f64> = x.chunks(h).map(|row| 1.0 / (dot(row, row) / h as f64 + eps).sqrt()).collect();
    let rows = x.chunks(h).zip(&rstd);
    (rows.flat_map(|(row, rstd)| row.iter().zip(gamma).map(move |(x, gamma)| gamma * x * rstd)).collect(), rstd)
}

fn rmsnorm_fwd(key: &Key) {
    let launch = Launch::new(key, rmsnorm_fwd_params { tokens: 5, eps: 1e-2, ..Default::default() });
    let mut x = launch.before("x");
    if field(key, "residual") == "true" {
        x.iter_mut().zip(launch.before("delta")).for_each(|(x, delta)| *x += delta);
        launch.is("sum", &x);
    }
    let (y, rstd) = normalised(&x, &launch.before("gamma"), f64::from(1e-2f32));
    launch.is("y", &y);
    launch.is("rstd", &rstd);
}

fn rmsnorm_bwd(key: &Key) {
    const EPS: f64 = 1e-3;
    let h = size(key, "h");
    let launch = Launch::with(key, rmsnorm_bwd_params { tokens: 5, rows: 2, ..Default::default() }, |launch| {
        vec![("rstd", normalised(&launch.before("x"), &launch.before("gamma"), EPS).1)]
    });
    let (x, dy, gamma) = (launch.before("x"), launch.before("dy"), launch.before("gamma"));
    // Rows do not mix: a row's gradient follows from the row alone.
    let rows = x.chunks(h).zip(dy.chunks(h));
    let mut dx: Vec<f64> = rows.flat_map(|(x, dy)| gradient(x, |x| dot(&normalised(x, &gamma, EPS).0, dy))).collect();
    if field(key, "residual") == "true" {
        dx.iter_mut().zip(launch.before("dresidual")).for_each(|(dx, residual)| *dx += residual);
    }
    launch.is("dx", &dx);
    let groups = x.chunks(2 * h).zip(dy.chunks(2 * h));
    let dgamma = groups.flat_map(|(x, dy)| gradient(&gamma, |gamma| dot(&normalised(x, gamma, EPS).0, dy)));
    launch.is("dgamma_partial", &dgamma.collect::<Vec<_>>());
}

fn rmsnorm_dgrad(key: &Key) {
    const EPS: f64 = 1e-3;
    let h = size(key, "h");
    let launch = Launch::with(key, rmsnorm_dgrad_params { tokens: 5, ..Default::default() }, |launch| {
        vec![("rstd", normalised(&launch.before("x"), &launch.before("gamma"), EPS).1)]
    });
    let (x, dy, gamma) = (launch.before("x"), launch.before("dy"), launch.before("gamma"));
    let rows = x.chunks(h).zip(dy.chunks(h));
    let mut dx: Vec<f64> = rows.flat_map(|(x, dy)| gradient(x, |x| dot(&normalised(x, &gamma, EPS).0, dy))).collect();
    if field(key, "residual") == "true" {
        dx.iter_mut().zip(launch.before("dresidual")).for_each(|(dx, residual)| *dx += residual);
    }
    launch.is("dx", &dx);
}

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

fn rope_fwd(key: &Key) {
    rope(key, 1.0);
}

fn rope_bwd(key: &Key) {
    rope(key, -1.0);
}

fn swiglu_fwd(key: &Key) {
    let launch = Launch::new(key, swiglu_fwd_params { tokens: 5, n: 19, ..Default::default() });
    launch.is("y", &launch.before("gate_up").chunks(2 * 19).flat_map(gated).collect::<Vec<_>>());
}

fn swiglu_bwd(key: &Key) {
    let launch = Launch::new(key, swiglu_bwd_params { tokens: 5, n: 19, ..Default::default() });
    let (gate_up, dy) = (launch.before("gate_up"), launch.before("dy"));
    let rows = gate_up.chunks(2 * 19).zip(dy.chunks(19));
    launch.is("dgate_up", &rows.flat_map(|(row, dy)| gradient(row, |row| dot(&gated(row), dy))).collect::<Vec<_>>());
}

/// Operations without a function that could be taken for the identity: products, sums, copies, and what takes nothing
/// normal.
const LINEAR: [&str; 19] = [
    "attention.delta",
    "cast",
    "column_sum.finish",
    "column_sum.partial",
    "embedding.bwd",
    "embedding.fwd",
    "fill",
    "gemm.dgrad",
    "gemm.fwd",
    "gemm.wgrad",
    "grad_norm.finish",
    "grad_norm.partial",
    "lora.dgrad_a",
    "lora.dgrad_b",
    "lora.fwd_a",
    "lora.fwd_b",
    "lora.wgrad",
    "rope.bwd",
    "rope.fwd",
];

/// `x sigmoid(x)`, `tanh` and `exp` are told apart from a straight line only where inputs are large.
#[test]
fn inputs_are_large_enough_to_show_what_is_not_linear() {
    for key in examples().into_iter().filter(|key| !LINEAR.contains(&key.op()) && !ELSEWHERE.contains(&key.op())) {
        let samples = key.kernel().samples();
        let shows = samples.iter().any(|params| !is_homogeneous(&key, params));
        assert!(shows, "{key}: doubled inputs give outputs that are a power of two as large, within its tolerance");
    }
}

/// Whether doubled inputs give outputs that are one power of two times as large, within the kernel's tolerance.
fn is_homogeneous(key: &Key, params: &[u8]) -> bool {
    let single = Case::new(key, params, 3);
    let mut double = Case::new(key, params, 3);
    let inputs = single.operands.iter().zip(&mut double.before);
    for (operand, buffer) in
        inputs.filter(|(operand, _)| matches!(operand.content, precast_kernels::Content::Normal(_)))
    {
        if !operand.access.reads() {
            continue;
        }
        *buffer = scaled(operand.format, buffer, 2.0);
    }
    let (single_out, double_out) = (single.reference(), double.reference());
    let outputs = single.operands.iter().zip(single_out.iter().zip(&double_out));
    let mut outputs = outputs.filter(|(operand, _)| operand.access.is_output() && operand.format != Dtype::U32);
    outputs.all(|(operand, (single_out, double_out))| {
        [0.25, 0.5, 1.0, 2.0, 4.0, 8.0]
            .into_iter()
            .any(|power| double.compare(operand, double_out, &scaled(operand.format, single_out, power)).is_ok())
    })
}

/// A power of two times each value: exact.
fn scaled(format: Format, bytes: &[u8], power: f32) -> Buffer {
    let bytes: Vec<u8> = match format {
        Format::Dense(Dtype::F32) => {
            let value = |word: &[u8]| f32::from_le_bytes(word.try_into().expect("four bytes"));
            bytes.chunks_exact(4).flat_map(|word| (power * value(word)).to_le_bytes()).collect()
        }
        Format::Dense(Dtype::Bf16) => {
            let value = |word: &[u8]| half::bf16::from_le_bytes([word[0], word[1]]).to_f32();
            bytes.chunks_exact(2).flat_map(|word| half::bf16::from_f32(power * value(word)).to_le_bytes()).collect()
        }
        _ => bytes.to_vec(),
    };
    Buffer::from(&bytes[..])
}
