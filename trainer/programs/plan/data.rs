//! The data of a run that is planned: how their rows fill its steps.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use crate::base::notes::note;
use crate::device::run_models::RunModels;
use crate::inputs::data::{Summary, path_of};
use crate::options::{Length, RunConfig};
use crate::programs::distill::{has_teacher_prompts, read_data};
use crate::run::failure::Failure;

/// The data of a run, counted.
#[derive(Debug, Serialize)]
pub(super) struct PlannedData {
    #[serde(skip)]
    what: String,
    #[serde(flatten)]
    summary: Summary,
    /// Share of the places of micro-batches that tokens of rows take.
    pub fill: f64,
    /// Steps of a pass.
    epoch_steps: u64,
}

impl PlannedData {
    /// Rows that lie in so many places, on the average.
    pub fn rows_in(&self, places: u64) -> u64 {
        (places as f64 * self.summary.chunks as f64 / self.summary.places as f64).round() as u64
    }

    /// Reads all rows of a run's data, if it names any, by its models' tokenizer: a bare `config.json` has none.
    /// Returns them with the run's configuration, in which their packing is known.
    ///
    /// # Errors
    /// [`Failure`] of models or data that cannot be read.
    pub fn read(config: &RunConfig) -> Result<(RunConfig, Option<Self>), Failure> {
        let is_bare = |path: &Path| path.extension() == Some("json".as_ref());
        // What a student completes of its prompts is not known before, but whether its teacher has others.
        if config.on_policy.is_some() {
            let is_there = !config.data.is_empty() && config.data.iter().all(|named| path_of(named).exists());
            let own_prompts = is_there && has_teacher_prompts(config)?;
            return Ok((RunConfig { own_prompts, ..config.clone() }, None));
        }
        if config.data.is_empty() || config.models().iter().any(|(_, path)| is_bare(path)) {
            return Ok((config.clone(), None));
        }
        if let Some(absent) = config.data.iter().map(|named| path_of(named)).find(|path| !path.exists()) {
            note(format_args!("{} is not there: how its rows fill the steps is not said", absent.display()));
            return Ok((config.clone(), None));
        }
        let models = match RunModels::open(config) {
            Ok(models) => models,
            Err(error) => {
                note(format_args!("--data is not read: {error}"));
                return Ok((config.clone(), None));
            }
        };
        let data = read_data(config, &models)?;
        let (config, streams) = (RunConfig { own_prompts: data.has_teacher_prompts(), ..config.clone() }, data.streams);
        let corpus = &streams.corpus;
        let summaries = streams.count()?;
        let (summary, fill) = (summaries.total(), summaries.fill());
        summary.note(corpus.chunk).iter().for_each(note);
        let config = config.over(corpus.places.packing, summary.places)?;
        let epoch = RunConfig { length: Length::Epochs { epochs: 1.0 }, ..config.clone() };
        let epoch_steps = epoch.over(corpus.places.packing, summary.places)?.steps();
        Ok((config, Some(Self { what: corpus.what(), summary, fill, epoch_steps })))
    }
}

impl fmt::Display for PlannedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, summary, fill, epoch_steps } = self;
        write!(
            f,
            "data: {what}: {summary}\nan epoch: {epoch_steps} steps, whose places are {:.1} % filled",
            100.0 * fill
        )
    }
}
