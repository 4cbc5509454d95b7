//! Dot products, transposes, sigmoids, log-sum-exp, and slopes by central differences: what the formulas are written
//! with.

/// The slopes of functions along a direction, by central differences.
pub fn slopes(at: &[f64], along: &[f64], functions: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let moved = |step: f64| functions(&at.iter().zip(along).map(|(at, along)| at + step * along).collect::<Vec<_>>());
    moved(STEP).iter().zip(moved(-STEP)).map(|(above, below)| (above - below) / (2.0 * STEP)).collect()
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    // Sums beside each other, which a processor adds at one time.
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        (0..8).for_each(|i| sums[i] += a[i] * b[i]);
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// The dot product of each row.
pub fn dots(a: &[f64], b: &[f64], columns: usize) -> Vec<f64> {
    assert_eq!(a.len(), b.len());
    a.chunks(columns).zip(b.chunks(columns)).map(|(a, b)| dot(a, b)).collect()
}

pub fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

pub fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

pub fn log_sum_exp(values: &[f64]) -> f64 {
    let largest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    largest + values.iter().map(|value| (value - largest).exp()).sum::<f64>().ln()
}

/// `x` [m, k] times the transpose of `w` [n, k].
pub fn matmul(x: &[f64], w: &[f64], k: usize) -> Vec<f64> {
    x.chunks(k).flat_map(|row| w.chunks(k).map(move |feature| dot(row, feature))).collect()
}

pub fn transposed(x: &[f64], columns: usize) -> Vec<f64> {
    (0..columns).flat_map(|column| x.iter().skip(column).step_by(columns).copied()).collect()
}
