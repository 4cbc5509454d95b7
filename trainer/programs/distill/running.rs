//! A run that has its directory, and what its steps change.

use std::collections::BTreeSet;

use precast_fatbins::Digest;
use precast_plan::estimate::floor_seconds;

use super::held_out::{HeldOutVerdict, Scores};
use super::open::Opened;
use super::progress::StepProgress;
use super::ready::Ready;
use super::resume::Resumed;
use crate::base::notes;
use crate::base::startup_times::Startup;
use crate::base::stop::Stop;
use crate::inputs::data::{Packing, Summaries};
use crate::options::RunConfig;
use crate::ranks::Ranks;
use crate::run::checkpoint;
use crate::run::failure::Failure;
use crate::run::log;
use crate::run::metrics::{METRICS, MetricsFile};
use crate::run::out::Out;
use crate::run::record::{RunRecord, Since};
use crate::run::samples_file::{Extent, SamplesFile};
use crate::run::still::{self, Still};

/// A run whose steps are being taken.
pub(super) struct Running<'a> {
    pub run: Ready,
    pub startup: Startup,
    pub stop: &'a Stop,
    pub ranks: &'a Ranks,
    /// The files of the run; rank 0 alone writes them.
    pub written: Option<Written>,
    /// The lines that people see; rank 0 alone prints them.
    pub progress: Option<StepProgress>,
    /// Steps that are done.
    pub done: u64,
    /// True if no step is left before the first one is taken.
    is_over: bool,
    pub still: Still,
    /// Skipped steps in a row.
    pub skipped: u32,
    pub waits: ExchangeWaits,
    /// Tokens that end a text that the student writes.
    pub stops: Vec<u32>,
    /// Numbers of the teachers whose rows steps of this process have taken.
    pub taught_by: BTreeSet<u32>,
}

/// The files of a run, as rank 0 writes them.
pub(super) struct Written {
    pub out: Out,
    pub record: RunRecord,
    pub metrics: MetricsFile,
    /// Completions of some steps, of a run that keeps them.
    pub samples: Option<SamplesFile>,
    /// Held-out losses so far.
    pub scores: Scores,
}

/// Time that steps have waited for exchanges among ranks: from the end of the first step that is known of to that of
/// the last.
#[derive(Clone, Copy, Default)]
pub(super) struct ExchangeWaits {
    first: Option<(u64, f64)>,
    last: Option<(u64, f64)>,
}

impl ExchangeWaits {
    pub fn add(&mut self, step: u64, seconds: f64) {
        self.first.get_or_insert((step, seconds));
        self.last = Some((step, seconds));
    }

    /// Milliseconds of waiting in a step; none where fewer than two steps are known.
    pub fn ms_a_step(self) -> Option<f64> {
        let ((first, before), (last, seconds)) = (self.first?, self.last?);
        (last > first).then(|| 1e3 * (seconds - before) / (last - first) as f64)
    }
}

impl<'a> Running<'a> {
    /// Makes the output directory this run's, from its beginning or from its checkpoint on: every check has passed.
    pub fn begin(mut run: Ready, startup: Startup, stop: &'a Stop, ranks: &'a Ranks) -> Result<Self, Failure> {
        let Opened { resumed, models, .. } = &run.opened;
        let before = resumed.as_ref().map_or(&[][..], Resumed::steps);
        let still = Still::new(before, still::what_is_zero(&models.models.student, models.adapter.as_ref()));
        let out = run.opened.out.take();
        let written = out.map(|out| Written::take_over(out, &mut run, ranks)).transpose()?;
        // The directory is this run's on every rank, and so is what its evaluations came to.
        let output = &run.opened.config.output;
        let own = written.as_ref().map(|written| HeldOutVerdict { ends: written.scores.ends(output), saves: false });
        let is_over = HeldOutVerdict::shared(own, ranks)?.ends;
        if is_over {
            stop.end();
        }
        if !ranks.is_first() {
            let rank = ranks.place.rank;
            let logs = run.opened.begin.record.as_ref().and_then(|record| record.logs.clone()).unwrap_or_default();
            log::open(&run.opened.config.out, rank, logs.get(&log::name(rank)).copied());
        }
        let Ready { opened: Opened { config, begin, models, .. }, session, .. } = &run;
        let (micros, _) = config.division.share.micros(config.division.grad_accum.into());
        let micros = (micros.end - micros.start) as u32;
        // Of a step that packs its sequences by their lengths none is known before.
        let is_full = config.on_policy.is_none() && config.places().packing == Packing::None;
        let peak = session.device().peak().filter(|_| is_full);
        let floor_s = peak.map(|limit| floor_seconds(&session.plan.plan, micros, &limit));
        let progress = written.as_ref().map(|_| StepProgress::new(config, begin.step, floor_s));
        let waits = ExchangeWaits::default();
        let done = begin.step;
        let stops = models.models.student.eos_tokens();
        Ok(Self {
            run,
            startup,
            stop,
            ranks,
            written,
            progress,
            done,
            is_over,
            still,
            skipped: 0,
            waits,
            stops,
            taught_by: BTreeSet::new(),
        })
    }

    /// The last step that is to be taken, as far as is known: evaluations may end the run before.
    pub fn last_step(&self) -> u64 {
        if self.is_over { self.done } else { self.config().steps() }
    }

    pub fn config(&self) -> &RunConfig {
        &self.run.opened.config
    }
}

impl Written {
    /// Records that the directory is this run's, and since when.
    fn take_over(mut out: Out, run: &mut Ready, ranks: &Ranks) -> Result<Self, Failure> {
        let Ready { opened: Opened { resumed, corpus, summaries, held_out, .. }, recorded: config, session, .. } = run;
        let sha256 = held_out.as_ref().map(|data| data.sha256);
        let (since, scores) = resumed
            .as_ref()
            .map_or_else(|| Ok((Since::of(None, sha256, 0), Scores::default())), |resumed| resumed.scores(sha256))?;
        scores.note(&config.output).iter().for_each(notes::note);
        let mut record = RunRecord::new(config, session, corpus);
        record.data(None, summaries.as_ref().map(Summaries::total));
        for (choice, teacher) in config.teachers.iter().zip(run.teachers.drain(..)) {
            record.add_teacher(choice.name.as_deref(), teacher);
        }
        out.keep_logs(ranks.count());
        let (done, metrics_sha256) = match resumed {
            Some(Resumed { saved, .. }) => (saved.state.step, saved.state.metrics_sha256),
            None => (0, Digest::of(b"")),
        };
        let mut changes = resumed.as_ref().map(|resumed| resumed.changes(config)).unwrap_or_default();
        record.held_out = since;
        let of_best = resumed.as_ref().and_then(|resumed| Since::change(since, resumed.steps()));
        of_best.iter().for_each(notes::note);
        changes.extend(of_best);
        record.best(scores.best());
        record.part(done, resumed.as_ref().map(|resumed| &resumed.record), &changes);
        record.metrics((done, metrics_sha256));
        // What a part that was killed wrote behind its checkpoint is this run's, too.
        let has_samples = |resumed: &Resumed| resumed.record.samples_written.map(|_| Extent::default());
        let samples = resumed.as_ref().and_then(|resumed| resumed.saved.state.samples.or_else(|| has_samples(resumed)));
        let keeps_samples = samples.is_some() || config.on_policy.is_some_and(|on_policy| on_policy.samples_every > 0);
        record.samples_written = keeps_samples.then(|| samples.unwrap_or_default());
        out.begin(&mut record)?;
        // A kill may have come before the oldest ones went.
        checkpoint::prune(&mut out, config.output.keep, scores.best().map(|(step, _)| step))?;
        let metrics = match resumed {
            Some(resumed) => MetricsFile::resume(&resumed.metrics, done)?,
            None => MetricsFile::create(&out.path().join(METRICS))?,
        };
        let samples = keeps_samples.then(|| SamplesFile::open(out.path(), samples)).transpose()?;
        out.open_log();
        Ok(Self { out, record, metrics, samples, scores })
    }
}
