//! Draws against the distribution that they are of, in float64: Pearson's chi-square test.

use precast_kernels::{KERNELS, abi::sample_params, check::Case, host::Buffer};
use rayon::prelude::*;

const VOCAB: usize = 96;
/// Rows of a launch, each a draw.
const ROWS: u32 = 1 << 14;

/// Logits of a row: of tokens that are likely, of some that hardly are, and of two that are as likely as another.
fn logits() -> Vec<f32> {
    (0..VOCAB).map(|id| ((id * id * 7) % 89) as f32 / 20.0 - 2.0).collect()
}

/// Probabilities of the tokens, by sorting in float64: those that top-k and then top-p leave, the smallest id first at
/// ties.
fn probabilities(p: &sample_params, logits: &[f32]) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|logit| (f64::from(*logit) / f64::from(p.temperature)).exp()).collect();
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    if p.top_k > 0 {
        ids.truncate(p.top_k as usize);
    }
    let sum = |ids: &[usize]| ids.iter().map(|id| weights[*id]).sum::<f64>();
    let all = sum(&ids);
    let kept = (1..=ids.len()).find(|count| sum(&ids[..*count]) >= f64::from(p.top_p) * all);
    ids.truncate(kept.unwrap_or(ids.len()));
    let all = sum(&ids);
    (0..logits.len()).map(|id| if ids.contains(&id) { weights[id] / all } else { 0.0 }).collect()
}

/// Counts how often each token is drawn, over rows of the same logits with different sequences and positions.
fn counts(p: sample_params, logits: &[f32], draws: u64) -> Vec<u64> {
    let key = KERNELS.parse("sample{x=f32}").unwrap();
    let p = sample_params { rows: ROWS, vocab: VOCAB as u32, ..p };
    let mut case = Case::new(&key, bytemuck::bytes_of(&p), 1);
    let [all, sequence, position, token] = ["logits", "sequence", "position", "token"]
        .map(|name| case.operands.iter().position(|it| it.name == name).unwrap());
    case.before[all] = Buffer::from(bytemuck::cast_slice(&logits.repeat(ROWS as usize)));
    case.before[position] = Buffer::from(bytemuck::cast_slice(&(0..ROWS).collect::<Vec<u32>>()));
    let mut counts = vec![0; logits.len()];
    for launch in 0..draws.div_ceil(ROWS.into()) {
        // A launch is a sequence, of which rows are the positions.
        case.before[sequence] = Buffer::from(bytemuck::cast_slice(&vec![launch; ROWS as usize]));
        for token in bytemuck::pod_collect_to_vec::<u8, u32>(&case.reference()[token]) {
            counts[token as usize] += 1;
        }
    }
    counts
}

/// The probability of a chi-square of so many degrees of freedom that is at least this: the regularized incomplete
/// gamma function, by its series (Press et al., "Numerical Recipes", 6.2).
fn p_value(chi_square: f64, degrees: f64) -> f64 {
    let (a, x) = (degrees / 2.0, chi_square / 2.0);
    let terms = (1..10_000).scan(1.0 / a, |term, n| {
        *term *= x / (a + f64::from(n));
        Some(*term)
    });
    let series = 1.0 / a + terms.sum::<f64>();
    1.0 - series * (a * x.ln() - x - ln_gamma(a)).exp()
}

/// Stirling's series, for arguments shifted to where it converges.
fn ln_gamma(a: f64) -> f64 {
    let (shift, x) = ((0..16).map(|n| (a + f64::from(n)).ln()).sum::<f64>(), a + 16.0);
    let stirling = (x - 0.5) * x.ln() - x + (2.0 * std::f64::consts::PI).ln() / 2.0;
    stirling + 1.0 / (12.0 * x) - 1.0 / (360.0 * x.powi(3)) + 1.0 / (1260.0 * x.powi(5)) - shift
}

#[test]
fn p_values_are_those_of_tables() {
    for (chi_square, degrees, p) in
        [(3.841, 1.0, 0.05), (18.307, 10.0, 0.05), (135.807, 100.0, 0.01), (77.929, 100.0, 0.95)]
    {
        let found = p_value(chi_square, degrees);
        assert!((found - p).abs() < 1e-4, "{chi_square} of {degrees}: {found}");
    }
}

/// `PRECAST_TEST_DRAWS` draws of each way of drawing; prints the p-values where it is set.
#[test]
fn draws_have_the_distribution_of_the_softmax() {
    let asked = std::env::var("PRECAST_TEST_DRAWS").ok().map(|draws| draws.parse::<u64>().unwrap());
    let logits = logits();
    let ways = [(1.0, 0, 1.0), (0.7, 20, 1.0), (1.3, 0, 0.9), (1.0, 40, 0.8)];
    ways.into_par_iter().for_each(|(temperature, top_k, top_p)| {
        let p = sample_params { temperature, top_k, top_p, seed: 7, ..Default::default() };
        let (expected, found) = (probabilities(&p, &logits), counts(p, &logits, asked.unwrap_or(ROWS.into())));
        let draws = found.iter().sum::<u64>() as f64;
        let (mut chi_square, mut degrees) = (0.0, -1.0);
        for (id, (expected, found)) in expected.iter().zip(&found).enumerate() {
            assert!(*expected > 0.0 || *found == 0, "{id} is drawn and not among those to draw from");
            if *expected > 0.0 {
                chi_square += (*found as f64 - draws * expected).powi(2) / (draws * expected);
                degrees += 1.0;
            }
        }
        let p = p_value(chi_square, degrees);
        if asked.is_some() {
            let way = format!("temperature {temperature}, top-k {top_k}, top-p {top_p}");
            println!("{draws} draws, {way}: chi-square {chi_square:.1} of {degrees} degrees of freedom, p = {p:.4}");
        }
        assert!(p > 1e-3, "chi-square {chi_square} of {degrees} degrees of freedom, p = {p:e}");
    });
}
