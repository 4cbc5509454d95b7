//! A run in which nothing trains: the norm of its gradients is exactly 0 from the first step on.

use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::Checkpoint;
use crate::run::outcome::RunFault;
use crate::run::step::StepRecord;

/// Steps that are looked at. A single one may be of tokens that are predicted to the last bit.
const FIRST: u64 = 10;
/// Tensors that are named.
const NAMED: usize = 3;

/// Steps without a gradient from the first on, and why that may be.
pub struct Still {
    steps: u64,
    why: String,
}

impl Still {
    /// Continues a run after these steps.
    pub fn new(before: &[StepRecord], why: String) -> Self {
        let mut still = Self { steps: 0, why };
        before.iter().for_each(|record| still.add(record));
        still
    }

    fn add(&mut self, record: &StepRecord) {
        if record.grad_norm == Some(0.0) && record.step == self.steps + 1 {
            self.steps += 1;
        }
    }

    /// Looks at the next step of a run of so many.
    ///
    /// # Errors
    /// [`RunFault`] with the tenth step, or the last where there are fewer.
    pub fn check(&mut self, record: &StepRecord, steps: u64) -> Result<(), RunFault> {
        self.add(record);
        let first = FIRST.min(steps);
        if record.step == first { self.check_end(first) } else { Ok(()) }
    }

    /// Looks at a run that ends after so many steps, ten at most: all of them.
    ///
    /// # Errors
    /// [`RunFault`].
    pub fn check_end(&self, first: u64) -> Result<(), RunFault> {
        if self.steps != first {
            return Ok(());
        }
        Err(RunFault(format!(
            "the gradient norm is exactly 0 in each of the first {first} steps, so nothing trains: {}. Nothing is \
            written",
            self.why
        )))
    }
}

/// Names what is zero of a model that trains, or of its adapter.
pub fn what_is_zero(student: &Checkpoint, adapter: Option<&Adapter>) -> String {
    let layout = adapter.map(|adapter| &adapter.layout);
    let mut scaled = layout.into_iter().flat_map(|layout| layout.each.iter().map(|adapted| layout.scale(adapted)));
    if scaled.any(|scale| scale == 0.0) {
        return "the adapter's scale is 0 in f32: raise lora_alpha".to_owned();
    }
    said(&student.zeros())
}

fn said(zeros: &[String]) -> String {
    match zeros {
        [] => "no tensor of the model that trains is wholly zero: one of its weights may be so large that it hides \
            all others"
            .to_owned(),
        zeros => format!("wholly zero of the model that trains: {}", named(zeros)),
    }
}

/// A note of a model with tensors that are wholly zero, as block expansion adds them.
pub fn note(role: &str, model: &Checkpoint) -> Option<String> {
    let zeros = model.zeros();
    (!zeros.is_empty())
        .then(|| format!("tensors of the {role} that are wholly zero: {}, {}", zeros.len(), named(&zeros)))
}

fn named(zeros: &[String]) -> String {
    let more = zeros.len().saturating_sub(NAMED);
    let first = zeros[..zeros.len() - more].join(", ");
    if more > 0 { format!("{first} and {more} more") } else { first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::steps;

    /// Steps with these norms, of a run of so many, continued after `before`.
    fn check(norms: &[f64], of: u64, before: usize) -> Result<(), RunFault> {
        let mut records = steps(&vec![1.0; norms.len()], &[]);
        records.iter_mut().zip(norms).for_each(|(record, norm)| record.grad_norm = Some(*norm));
        let mut still = Still::new(&records[..before], "why".to_owned());
        records[before..].iter().try_for_each(|record| still.check(record, of))
    }

    #[test]
    fn ten_steps_without_a_gradient_end_a_run() {
        let fault = |steps| {
            let why = "the gradient norm is exactly 0 in each of the first";
            Err(RunFault(format!("{why} {steps} steps, so nothing trains: why. Nothing is written")))
        };
        assert_eq!(check(&[0.0; 9], 1000, 0), Ok(()));
        assert_eq!(check(&[0.0; 10], 1000, 0), fault(10));
        assert_eq!(check(&[0.0; 10], 1000, 4), fault(10));
        assert_eq!(check(&[0.0; 3], 3, 0), fault(3));
        assert_eq!(check(&[0.0; 3], 4, 0), Ok(()));
    }

    #[test]
    fn one_step_without_a_gradient_among_others_is_no_failure() {
        let mut norms = [0.0; 20];
        norms[0] = 1e-30;
        assert_eq!(check(&norms, 20, 0), Ok(()));
        norms = [0.0; 20];
        norms[9] = 1.0;
        assert_eq!(check(&norms, 20, 0), Ok(()));
        assert_eq!(check(&[1.0, 0.0], 2, 0), Ok(()));
    }

    #[test]
    fn zeros_are_named_and_counted() {
        let zeros = ["a", "b", "c", "d", "e"].map(str::to_owned);
        assert_eq!(said(&zeros), "wholly zero of the model that trains: a, b, c and 2 more");
        assert_eq!(said(&zeros[..2]), "wholly zero of the model that trains: a, b");
        assert!(said(&[]).starts_with("no tensor of the model that trains is wholly zero"));
    }
}
