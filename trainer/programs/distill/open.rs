//! Inputs and checks of a run before it takes a device. A dry run ends behind them.

use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use precast_fatbins::Digest;
use precast_plan::decoding::MOST_STOPS;
use precast_runtime::cublas::Cublas;
use precast_system::say;

use super::Mode;
use super::begin::{self, Begin};
use super::certify::Certified;
use super::digests::{DataDigest, ModelDigests};
use super::held_out::{HeldOut, sha256};
use super::inputs::{batches, find_same_files, note_of_turns, read_data, take_stop_token};
use super::on_policy::note_of_none;
use super::resume::Resumed;
use super::wait::unless_stopped;
use crate::base::notes;
use crate::base::startup_times::Startup;
use crate::base::stop::Stop;
use crate::device;
use crate::device::decoding::DecodeError;
use crate::device::run_models::RunModels;
use crate::device::tuning::Tuning;
use crate::inputs::checkpoint::Checkpoint;
use crate::inputs::data::{Batches, Corpus, DataError, Streams, Summaries};
use crate::options::{Options, Purpose, RunConfig, UsageError};
use crate::ranks::{Launcher, RankError, RankFailure, Ranks};
use crate::run::covered;
use crate::run::failure::Failure;
use crate::run::identity::{Data, Identity};
use crate::run::out::{Out, Start, refuse_inputs};
use crate::run::tokens;

/// A rank that is refused as all are waits so long for the report of the first.
const REPORT: Duration = Duration::from_secs(5);

/// A run whose options, models, data and steps so far go together. An output directory that is there is locked, and one
/// that is not is made, unless it is a dry run.
pub(super) struct Checked {
    pub config: RunConfig,
    out: Option<Out>,
    resumed: Option<Resumed>,
    begin: Begin,
    models: RunModels<Checkpoint>,
    data: Data,
    pub summaries: Option<Summaries>,
    digests: ModelDigests,
    data_digest: DataDigest,
    identity: Identity,
    cublas: Option<Cublas>,
    teachers: Certified,
}

/// A run before it has a device.
pub(super) struct Opened {
    /// With the steps, and the share of each, that ranks and the run so far agree on.
    pub config: RunConfig,
    /// Output directory; rank 0 has one.
    pub out: Option<Out>,
    pub resumed: Option<Resumed>,
    pub begin: Begin,
    pub models: RunModels<Checkpoint>,
    pub corpus: Arc<Corpus>,
    /// Summaries of the data, where what is read ahead holds it all.
    pub summaries: Option<Summaries>,
    pub held_out: Option<HeldOut>,
    pub digests: ModelDigests,
    pub data_digest: DataDigest,
    pub identity: Identity,
}

/// State that opening the device uses up.
pub(super) struct UnderWay {
    pub cublas: Option<Cublas>,
    pub teachers: Certified,
    /// The batches after the steps that are done, and the digest of the tokens of those.
    pub seen: JoinHandle<Result<(Batches, Digest), DataError>>,
}

impl Checked {
    /// Opens the inputs of a run, and compares them with other ranks' and with the run so far.
    pub fn of(
        asked: &Options,
        mode: &Mode,
        startup: &mut Startup,
        stop: &Stop,
        ranks: &Ranks,
    ) -> Result<Self, Failure> {
        let config = asked.resolve(Purpose::Run, ranks.share(1), None).map_err(|error| refused(error, ranks))?;
        config.data_request()?;
        let inputs: Vec<&Path> = mode.config_file.as_deref().into_iter().chain(config.inputs()).collect();
        let is_claimed = match mode.dry_run {
            true => mode.start == Start::Resume || std::fs::symlink_metadata(&config.out).is_ok(),
            false => ranks.is_first(),
        };
        if mode.dry_run && !is_claimed {
            refuse_inputs(&config.out, &inputs)?;
        }
        let out = is_claimed.then(|| Out::claim(&config.out, mode.start, &inputs)).transpose()?;
        let continued = out.as_ref().filter(|_| mode.start == Start::Resume);
        let mut resumed = continued.map(|out| Resumed::open(out, &config)).transpose()?;
        let (config, begin) = begin::agree(asked, resumed.as_ref(), out.as_ref(), ranks)?;
        let cublas = device::cublas(config.arithmetic.gemm, config.target.device)?;
        let models = RunModels::open(&config)?;
        take_stop_token(&config, &models.models)?;
        let mut digests = ModelDigests::start(&models);
        let stops = models.models.student.eos_tokens().len();
        if config.completions.is_some() && stops > MOST_STOPS as usize {
            return Err(DecodeError::Stops(stops).into());
        }
        startup.end("models");
        let (mut models, data, summaries) = {
            let (config, dry_run) = (config.clone(), mode.dry_run);
            unless_stopped(stop, "reading data", move || {
                let data = read_data(&config, &models);
                let summaries = data.as_ref().ok().map(|data| length_of(&data.streams, &config, dry_run));
                (models, data, summaries)
            })?
        };
        let (data, summaries) = (data?, summaries.transpose()?.flatten());
        let config = RunConfig { own_prompts: data.has_teacher_prompts(), ..config };
        let config = over(config, &data.streams.corpus, summaries.as_ref())?;
        note_of_turns(&models.models.student, models.adapter.as_ref(), &data.streams.corpus);
        let hashed = Arc::clone(&data.streams.corpus);
        let mut data_digest = DataDigest::of(move || hashed.digest());
        startup.end("data");
        find_same_files(&mut models, &mut digests, stop)?;
        let mut identity = Identity::new(&config, &data, &models);
        identity.cublas(cublas.as_ref().map(Cublas::version));
        identity.tuned(Tuning::read(&config.tuning)?.map(|tuning| tuning.digest));
        if ranks.count() > 1 || resumed.is_some() {
            identity.data(data_digest.wait(stop)?);
        }
        covered::check(&models.caches, &config, &data, || data_digest.wait(stop))?;
        if let Some(resumed) = &mut resumed {
            resumed.compare_steps(asked, &config);
            if resumed.compare(&identity).is_err() {
                identity.models(&digests.weights.wait(stop)?, &config);
                resumed.compare(&identity)?;
            }
            resumed.check_left(&config, data.held_out.as_ref().map(|data| sha256(data, &config)))?;
        }
        begin::check_alike(&config, &identity, &models.models, data.held_out.as_ref(), ranks)?;
        let before = resumed.as_ref().map(|resumed| &resumed.record).or(begin.record.as_ref());
        let teachers = Certified::open(&config, &models.models.teachers, &mut digests, before, stop)?;
        Ok(Self {
            config,
            out,
            resumed,
            begin,
            models,
            data,
            summaries,
            digests,
            data_digest,
            identity,
            cublas,
            teachers,
        })
    }

    /// Says what the data come to, and how often the steps take them.
    pub fn say(&self) {
        let corpus = &self.data.streams.corpus;
        let summary = self.summaries.as_ref().map(Summaries::total).unwrap_or_default();
        say!("data     {}: {summary}", corpus.what());
        corpus.ends().iter().for_each(|ends| say!("ends     {ends}"));
        say!("steps    {}", self.config.passes(self.summaries.as_ref()));
    }

    /// Begins to read the batches that come next.
    pub fn open(self, stop: &Stop) -> Result<(Opened, UnderWay), Failure> {
        let Self { config, out, resumed, begin, models, data, summaries, digests, data_digest, identity, .. } = self;
        let corpus = Arc::clone(&data.streams.corpus);
        let stops = models.models.student.eos_tokens();
        let held_out = data.held_out.as_ref().map(|data| HeldOut::new(data, &config, stops));
        let seen = seen(data.streams, &config, begin.step);
        stop.check()?;
        let opened =
            Opened { config, out, resumed, begin, models, corpus, summaries, held_out, digests, data_digest, identity };
        Ok((opened, UnderWay { cublas: self.cublas, teachers: self.teachers, seen }))
    }
}

/// Fails as options do that are refused on all ranks alike: the first of those that share a terminal says why.
fn refused(error: UsageError, ranks: &Ranks) -> Failure {
    if ranks.is_first() || ranks.place.launcher != Launcher::Precast {
        return error.into();
    }
    let (reason, exit_code) = (error.to_string(), Failure::from(error).exit_code());
    let failure = RankFailure { rank: 0, ranks: ranks.count(), exit_code, reason, by_itself: true };
    // One that ends before that has said so would be why all end.
    ranks.first_failure(REPORT).unwrap_or(RankError::Failed(failure)).into()
}

/// Returns what a pass over the data comes to: it is counted where the length of the run follows from it and in a dry
/// run, else known where what is read ahead holds all of it.
fn length_of(streams: &Streams, config: &RunConfig, dry_run: bool) -> Result<Option<Summaries>, DataError> {
    let ahead = streams.read_ahead()?;
    if ahead.is_some() || !(dry_run || config.length.is_open()) {
        return Ok(ahead);
    }
    let counted = streams.count()?;
    counted.total().note(streams.corpus.chunk).iter().for_each(notes::note);
    Ok(Some(counted))
}

/// Returns the configuration over data that come to `summaries`, and says what a user should know of its length.
fn over(config: RunConfig, corpus: &Corpus, summaries: Option<&Summaries>) -> Result<RunConfig, UsageError> {
    let config = config.over(corpus.places.packing, summaries.map_or(0, |summaries| summaries.total().places))?;
    let steps = config.steps();
    let notes = config.optimizer.warmup_note(steps).into_iter().chain(config.passes(summaries).notes());
    notes.chain(note_of_none(&config)).for_each(notes::note);
    Ok(config)
}

/// Starts to pass over the steps that are done, hashing their tokens.
fn seen(streams: Streams, config: &RunConfig, done: u64) -> JoinHandle<Result<(Batches, Digest), DataError>> {
    let (mut batches, accum) = (batches(streams, config), config.data_micros());
    std::thread::spawn(move || {
        let tokens = tokens::seen(&mut batches, done, accum)?;
        Ok((batches, tokens))
    })
}
