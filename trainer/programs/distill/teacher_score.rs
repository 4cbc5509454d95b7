//! Check that a teacher knows anything of the data: its own cross entropy on the first batch, before the first step.

use precast_plan::CachedTeacher;

use crate::base::notes::{self, warn};
use crate::base::record_text::finite;
use crate::device::session::Session;
use crate::inputs::checkpoint::CheckpointError;
use crate::inputs::data::{DataError, MicroBatch, Step};
use crate::options::{RunConfig, TeacherChoice};
use crate::run::failure::Failure;
use crate::run::record::{ExpertRows, RunRecord, TeacherScore};

/// Tokens that tell a teacher that is worse than guessing from one that meets a hard text.
const ENOUGH: u64 = 512;
/// A teacher may be this much worse than guessing, as random weights are, nats.
const WORSE_BY: f64 = 1.0;

/// Scores a teacher of a run, by its number, on as many of its first micro-batches as have enough tokens, which every
/// rank does alike. None if it has none among them.
///
/// # Errors
/// [`Failure`] of the device, and where no token of the step counts.
pub fn measure(
    session: &mut Session,
    first: &Step,
    (number, vocab): (usize, u32),
) -> Result<Option<TeacherScore>, Failure> {
    let (mut batches, mut tokens) = (Vec::<MicroBatch>::new(), 0);
    let all = || (0..first.micros()).map(|number| first.micro_batch(number)).filter(|batch| batch.counted > 0);
    if first.counted() > 0 && !all().any(|batch| batch.teacher == number) {
        return Ok(None);
    }
    for batch in all().filter(|batch| batch.teacher == number) {
        tokens += u64::from(batch.counted);
        batches.push(batch);
        if tokens >= ENOUGH {
            break;
        }
    }
    if tokens == 0 {
        return Err(DataError::nothing_counted(1).into());
    }
    let nll = f64::from(session.teacher_loss(&batches, (1.0 / tokens as f64) as f32)?);
    let experts = session.expert_rows(number)?.and_then(|rows| ExpertRows::of(&rows));
    Ok(Some(TeacherScore { experts, ..TeacherScore::new(nll, vocab, tokens) }))
}

impl TeacherScore {
    fn new(nll: f64, vocab: u32, tokens: u64) -> Self {
        let uniform_nll = f64::from(vocab).ln();
        let warning = (nll >= uniform_nll).then(|| {
            format!(
                "the teacher predicts the first batch no better than guessing does: {nll:.4} nats a token, where \
                guessing has \
                 {uniform_nll:.4}. Its weights are untrained or broken, or its tokens are not those of the data: are \
                 its tokenizer's \
                 files its own?"
            )
        });
        Self { nll: finite(nll), uniform_nll, tokens, warning, experts: None }
    }

    /// Says what it is, and refuses a teacher that is far worse than guessing, unless it may be.
    ///
    /// # Errors
    /// [`CheckpointError`] of such a teacher, and of one that predicts nothing.
    pub fn check(&self, choice: &TeacherChoice, config: &RunConfig) -> Result<(), CheckpointError> {
        let Self { nll, uniform_nll: uniform, tokens, .. } = *self;
        let (teacher, role) = (choice.path.display(), choice.role());
        let Some(nll) = nll else {
            return Err(CheckpointError::Wrong(format!(
                "{teacher}: the {role}'s cross entropy of the first batch, over {tokens} tokens, is not a finite \
                number: its weights \
                 are broken, or its activations overflow; try --precision fp32"
            )));
        };
        notes::print(format_args!(
            "{role}, on the first batch: cross entropy {nll:.4} nats a token over {tokens} tokens; guessing: \
            {uniform:.4}"
        ));
        if let Some(rows) = &self.experts {
            notes::print(format_args!("{role}, rows of an expert in the first batch: {rows}"));
        }
        if nll > uniform + WORSE_BY && tokens >= ENOUGH && !config.untrained {
            return Err(CheckpointError::Wrong(format!(
                "{teacher}: the {role}'s cross entropy of the first batch is {nll:.4} nats a token over {tokens} \
                tokens, worse by more \
                 than a nat than the {uniform:.4} of guessing. Its weights are untrained or broken, or its tokens \
                 are not those of the \
                 data. See that its tokenizer's files are its own, and that .bin or input_ids were made with them; \
                 `precast eval \
                 --model {teacher} --data ...` says the same of any text (--untrained allows it)"
            )));
        }
        self.warning.iter().for_each(warn);
        Ok(())
    }
}

/// The score of the teacher of a run, if it has one: as it was measured before, or on the beginning of the `first`
/// step.
///
/// # Errors
/// Those of [`measure`] and [`TeacherScore::check`].
pub fn of_run(
    config: &RunConfig,
    before: Option<&RunRecord>,
    session: &mut Session,
    first: impl FnOnce() -> Result<Step, DataError>,
    vocab: u32,
) -> Result<Vec<Option<TeacherScore>>, Failure> {
    let (mut first, mut read) = (Some(first), None);
    let score = |(number, teacher): (usize, &TeacherChoice)| {
        // Of the tokens that a compact cache lacks nobody has the logits.
        if matches!(session.plan.teachers[number].cached(), Some(CachedTeacher::Compact(_))) {
            return Ok(None);
        }
        let score = match before.and_then(|before| before.teacher(teacher.name.as_deref()).score) {
            Some(score) => Some(score),
            None => {
                if let Some(first) = first.take() {
                    read = Some(first()?);
                }
                let first = read.as_ref().expect("it is read once");
                // Prompts of one token each have none after it.
                if config.on_policy.is_some() && first.counted() == 0 {
                    return Ok(None);
                }
                measure(session, first, (number, vocab))?
            }
        };
        score.as_ref().map_or(Ok(()), |score| score.check(teacher, config))?;
        Ok(score)
    };
    config.teachers.iter().enumerate().map(score).collect()
}
