//! Losses that have grown over a run: it diverged, however finite its numbers are.

use precast_plan::Objective;

use crate::run::step::{StepRecord, mean};

/// Steps whose losses make a mean, at the start and at the end.
const MEAN_OF: usize = 10;
/// A mean that has grown by as much is no noise.
const FACTOR: f64 = 2.0;
/// A model that knew something may end this much worse than guessing, nats.
const WORSE_BY: f64 = 1.0;

/// Compares the losses of all steps of a run, whose student has so many tokens; none where they have not grown.
/// Otherwise the run diverged, by a loss that doubled, a model that knew something of the data and no longer does, or
/// one far worse than guessing.
pub fn of(records: &[StepRecord], objective: Objective, vocab: u32) -> Option<String> {
    let uniform = f64::from(vocab).ln();
    let ce = |record: &StepRecord| record.ce_loss;
    let ends = |of: fn(&StepRecord) -> Option<f64>| {
        Some((mean(&records[..MEAN_OF], of)?, mean(&records[records.len() - MEAN_OF..], of)?))
    };
    if records.len() >= 2 * MEAN_OF {
        let taught_alone = matches!(objective, Objective::Distill { alpha: 1.0, .. });
        let (name, of): (_, fn(&StepRecord) -> Option<f64>) =
            if taught_alone { ("kd_loss", |record| record.kd_loss) } else { ("ce_loss", ce) };
        if let Some((first, last)) = ends(of).filter(|(first, last)| *last > FACTOR * first) {
            return Some(format!(
                "the mean {name} of the last {MEAN_OF} steps is {last:.4}, above twice the {first:.4} of the first \
                {MEAN_OF}"
            ));
        }
        let worse = |(first, last): &(f64, f64)| *first < uniform && *last > uniform + WORSE_BY;
        if let Some((first, last)) = ends(ce).filter(worse) {
            return Some(format!(
                "the mean ce_loss of the last {MEAN_OF} steps is {last:.4}, worse by more than a nat than the \
                {uniform:.4} of guessing, \
                 and that of the first {MEAN_OF} was {first:.4}"
            ));
        }
    }
    let (first, last) = (records.first()?.ce_loss?, records.last()?.ce_loss?);
    (last > FACTOR * uniform && last > first).then(|| {
        format!(
            "the last ce_loss is {last:.4}, above twice the {uniform:.4} of guessing and above the {first:.4} of step 1"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::steps;

    const VOCAB: u32 = 96;

    fn of(losses: &[f64]) -> Option<String> {
        let mut records = steps(losses, &[]);
        records.iter_mut().for_each(|record| record.ce_loss = record.loss);
        super::of(&records, Objective::CrossEntropy, VOCAB)
    }

    #[test]
    fn noise_around_a_constant_is_no_growth_at_any_length() {
        // 30 %, up and down in turn and in runs.
        for losses in [[0.7, 1.3], [1.3, 0.7], [0.7, 0.7], [1.3, 1.3]] {
            for length in [1, 2, 19, 20, 21, 1000] {
                let noise: Vec<f64> = (0..length).map(|step| 4.0 * losses[step % 2]).collect();
                assert_eq!(of(&noise), None, "{length}");
            }
        }
        let rises: Vec<f64> = (0..40).map(|step| if step < 20 { 2.8 } else { 5.2 }).collect();
        assert_eq!(of(&rises), None);
    }

    #[test]
    fn a_loss_that_has_doubled_has_grown_from_twenty_steps_on() {
        let rises = |length: usize| [vec![1.0; length - 10], vec![2.25; 10]].concat();
        for length in [20, 1000] {
            let doubled = "the mean ce_loss of the last 10 steps is 2.2500, above twice the 1.0000 of the first 10";
            assert_eq!(of(&rises(length)).as_deref(), Some(doubled));
        }
        assert_eq!(of(&rises(19)), None);
        assert_eq!(of(&[vec![1.0; 10], vec![2.0; 10]].concat()), None);
    }

    #[test]
    fn a_teacher_alone_is_followed_by_its_own_loss() {
        let mut records = steps(&[1.0; 20], &[]);
        for record in &mut records {
            record.ce_loss = Some(4.0);
            record.kd_loss = Some(if record.step > 10 { 3.0 } else { 1.0 });
        }
        let distill = |alpha| Objective::Distill { alpha, temperature: 2.0, beta: 0.0 };
        let growth = "the mean kd_loss of the last 10 steps is 3.0000, above twice the 1.0000 of the first 10";
        assert_eq!(super::of(&records, distill(1.0), VOCAB).as_deref(), Some(growth));
        assert_eq!(super::of(&records, distill(0.5), VOCAB), None);
    }

    #[test]
    fn a_model_that_became_worse_than_guessing_has_forgotten() {
        // ln 96 is 4.56.
        let ends = |first: f64, last: f64| [vec![first; 10], vec![last; 10]].concat();
        assert!(of(&ends(4.5, 5.6)).unwrap().contains("worse by more than a nat than the 4.5643 of guessing"));
        assert_eq!(of(&ends(4.5, 5.5)), None);
        assert_eq!(of(&ends(4.6, 5.6)), None);
    }

    #[test]
    fn a_last_loss_of_twice_guessing_is_lost_at_any_length() {
        assert!(of(&[8.0, 9.2]).unwrap().starts_with("the last ce_loss is 9.2000, above twice the 4.5643"));
        assert_eq!(of(&[9.3, 9.2]), None);
        assert_eq!(of(&[8.0, 9.1]), None);
        assert_eq!((of(&[9.2]), of(&[])), (None, None));
        // A loss that is not finite is another fault's.
        assert_eq!(of(&[1.0, f64::NAN]), None);
    }
}
