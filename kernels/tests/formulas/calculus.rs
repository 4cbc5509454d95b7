//! Dot products, transposes, log-sum-exp, and gradients by central differences: what the formulas are written with.

/// The gradient of a function by central differences.
pub fn gradient(at: &[f64], mut function: impl FnMut(&[f64]) -> f64) -> Vec<f64> {
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

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

pub fn log_sum_exp(values: &[f64]) -> f64 {
    values.iter().map(|value| value.exp()).sum::<f64>().ln()
}

/// `x` [m, k] times the transpose of `w` [n, k].
pub fn product(x: &[f64], w: &[f64], k: usize) -> Vec<f64> {
    x.chunks(k).flat_map(|row| w.chunks(k).map(move |feature| dot(row, feature))).collect()
}

pub fn transposed(x: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|column| x.iter().skip(column).step_by(columns).copied()).collect()
}
