//! Options of `precast cache`.

use std::path::{Path, PathBuf};

use clap::{Args, value_parser};
use precast_kernels::abi::MOST_KEPT;
use precast_plan::Precision;

use crate::inputs::checkpoint;
use crate::inputs::data::{DataSource, Packing, Places, path_of};
use crate::inputs::teacher_cache::{CacheError, Compact, stored_bytes};
use crate::options::groups::TEMPERATURES;
use crate::options::groups::values::{exact_format, exact_precision, model, within};
use crate::options::size;
use crate::options::{
    DataRequest, DeviceOptions, PackingOptions, ShapeOptions, TeacherPrompts, Teachers, TextOptions, UsageError,
    WeightFormat, sources,
};

/// Options of computing, which --from does without.
const NOT_FROM: [&str; 12] = [
    "teacher",
    "data",
    "eval_data",
    "packing",
    "batch_size",
    "precision",
    "teacher_format",
    "device",
    "bundle",
    "trusted_key",
    "memory",
    "spill",
];

/// A teacher, the data that it reads, and where the cache goes.
#[derive(Args, Clone, Debug)]
pub struct CacheRequest {
    /// Model to compute: a directory, .gguf or .apr
    #[arg(long, value_name = "PATH", value_parser = model(), required_unless_present = "from")]
    pub teacher: Option<PathBuf>,
    /// Student that reads the data [default: --teacher]
    ///
    /// Its tokenizer, chat template and vocabulary make tokens of text, as they do in its runs.
    #[arg(long, value_name = "PATH", value_parser = model())]
    pub student: Option<PathBuf>,
    /// Training data, as of distill; repeatable
    #[arg(long, value_name = "PATH", num_args = 1.., required_unless_present = "from")]
    pub data: Vec<PathBuf>,
    /// Rows with the likeliest tokens that others have computed, in place of --teacher and --data: .jsonl or .parquet;
    /// repeatable
    ///
    /// Beside input_ids, messages, or prompt and completion they have `top_ids` and `top_logprobs`, or vLLM's
    /// `prompt_logprobs`: for each token what was likely there, given those before it, or null. A position without
    /// does not count.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "student", conflicts_with_all = NOT_FROM)]
    pub from: Vec<PathBuf>,
    /// Directory of the tokenizer that --from was computed with: refused unless its ids are the student's
    #[arg(long, value_name = "DIR", requires = "from")]
    pub tokenizer: Option<PathBuf>,
    /// Held-out data of the runs; repeatable
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub eval_data: Vec<PathBuf>,
    /// Keep the probabilities of so many most likely tokens of each position, and that of all others as one, in place
    /// of hidden states: a coarser divergence in less space
    ///
    /// Such a cache is of one --temperature and of the vocabulary of --student. With --from, K is the most frequent
    /// number of tokens of a position unless given.
    #[arg(long, value_name = "K", requires = "student", value_parser =
        value_parser!(u32).range(1..=i64::from(MOST_KEPT)))]
    pub keep_logits: Option<u32>,
    /// Temperature of the runs, with --keep-logits [default: 2]; with --from that of its log-probabilities [default: 1]
    #[arg(long, value_name = "X", value_parser = within(TEMPERATURES))]
    pub temperature: Option<f32>,
    #[command(flatten)]
    pub text: TextOptions,
    #[command(flatten)]
    pub packing: PackingOptions,
    #[command(flatten)]
    pub shape: ShapeOptions,
    /// Arithmetic: fp32 or bf16
    ///
    /// Runs with --precision int8 read a cache in bf16.
    #[arg(long, value_name = "P", default_value_t = Precision::Bf16, value_parser = exact_precision)]
    pub precision: Precision,
    /// Form of the teacher's weights on the device, at the same bits: bf16, stored (matrices as a GGUF file holds them)
    /// or auto (bf16 where that fits, else stored)
    #[arg(long, value_name = "FORM", default_value_t, value_parser = exact_format, help_heading = "Memory")]
    pub teacher_format: WeightFormat,
    #[command(flatten)]
    pub target: DeviceOptions,
    /// Device memory to take; a larger teacher is swept
    ///
    /// Bytes, or a number of KiB, MiB or GiB. Where the teacher does not fit into it, or into what is free, its layers
    /// pass through it one after the other, at the same bits.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes)]
    pub memory: Option<u64>,
    /// Pinned host memory of each GPU for the residual streams of a sweep [default: 0]
    ///
    /// Bytes, or a number of KiB, MiB or GiB. Of a larger pass than the device has room for, two blocks are there, and
    /// the others here: a reading of the file serves more tokens, at the same bits.
    #[arg(long, value_name = "SIZE", value_parser = size::bytes, default_value_t = 0, hide_default_value = true)]
    pub spill: u64,
    /// Cache: a new directory, or one to go on with
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Sign it with this secret key, as minisign writes it
    ///
    /// The signature is DIR/cache.json.minisig. An encrypted key is opened with $PRECAST_KEY_PASSWORD.
    #[arg(long, value_name = "KEY")]
    pub key: Option<PathBuf>,
    /// Say what it takes of disk and device, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// True if device, kernels and teacher are named first, on standard error.
    #[arg(skip)]
    pub heading: bool,
}

impl CacheRequest {
    /// Returns the places that sequences are computed in, end to end, however runs pack them.
    pub fn places(&self) -> Places {
        Places::new(self.shape.batch_size, self.shape.seq_len, Packing::Rows)
    }

    /// Returns the teacher.
    ///
    /// # Panics
    /// If others have computed it.
    pub fn teacher(&self) -> &Path {
        self.teacher.as_deref().expect("--teacher is required without --from")
    }

    /// Returns the model that reads the data.
    pub fn student(&self) -> &Path {
        self.student.as_deref().unwrap_or_else(|| self.teacher())
    }

    /// Returns the temperature of the runs.
    pub fn temperature(&self) -> f32 {
        self.temperature.unwrap_or(if self.from.is_empty() { 2.0 } else { 1.0 })
    }

    /// Refuses a temperature of an exact cache, which is of every one.
    ///
    /// # Errors
    /// [`UsageError`].
    pub fn check_temperature(&self) -> Result<(), UsageError> {
        if self.temperature.is_none() || self.keep_logits.is_some() || !self.from.is_empty() {
            return Ok(());
        }
        Err(UsageError(
            "--temperature requires --keep-logits K: runs at any temperature read a cache of all logits. Give \
             --keep-logits, or leave --temperature out"
                .to_owned(),
        ))
    }

    /// Returns the form of the cache for a student of a vocabulary; none of an exact one.
    pub fn compact(&self, student_vocab: u32) -> Option<Compact> {
        self.keep_logits.map(|keep_logits| Compact { keep_logits, temperature: self.temperature(), student_vocab })
    }

    /// Returns the files and directories that are read.
    pub fn inputs(&self) -> Vec<&Path> {
        let models = self.teacher.iter().chain(&self.student).chain(&self.tokenizer).chain(&self.key);
        let files = models.chain(&self.eval_data).chain(&self.from).map(PathBuf::as_path);
        files.chain(self.data.iter().map(|named| path_of(named))).chain(self.target.kernels.inputs()).collect()
    }

    /// Returns the data, as runs read them.
    ///
    /// # Errors
    /// [`UsageError`] of shares that do not go together.
    pub fn data_request(&self) -> Result<DataRequest<'_>, UsageError> {
        let Self { eval_data: held_out, text, shape, packing: PackingOptions { packing }, .. } = self;
        let whole = |path: &PathBuf| DataSource::whole(path);
        let has_likely = !self.from.is_empty();
        let sources = if has_likely { self.from.iter().map(whole).collect() } else { sources(&self.data, false)? };
        Teachers::default().check_sources(&sources, &[])?;
        let (shape, packing) = (*shape, *packing);
        Ok(DataRequest {
            sources,
            held_out: held_out.iter().map(whole).collect(),
            teachers: Vec::new(),
            text,
            shape,
            packing,
            likely: if has_likely { vec![0] } else { Vec::new() },
            teacher_prompts: TeacherPrompts::Read { cached: vec![0] },
            on_policy: None,
            completions: None,
        })
    }

    /// Refuses a disk on which a cache of so many bytes does not fit, beside what is there of it.
    ///
    /// # Errors
    /// [`CacheError::Space`].
    pub fn check_space(&self, bytes: u64) -> Result<(), CacheError> {
        let needed = bytes.saturating_sub(stored_bytes(&self.out));
        match checkpoint::free_space(&self.out) {
            (Some(free), path) if free < needed => Err(CacheError::Space { path: path.to_owned(), needed, free }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::Parser;

    use super::*;
    use crate::run::failure::Failure;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        request: CacheRequest,
    }

    #[test]
    fn a_disk_without_room_is_refused_in_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("new/cache");
        let line = ["cache", "--teacher", "teacher", "--data", "data", "--out"].map(OsString::from);
        let Line { request } = Line::parse_from(line.into_iter().chain([out.clone().into()]));
        request.check_space(1).unwrap();
        let refused = request.check_space(u64::MAX).unwrap_err();
        let CacheError::Space { path, needed, free } = &refused else { panic!("{refused}") };
        assert!(path == dir.path() && *needed == u64::MAX && free < needed, "{refused}");
        let said = format!("{} more: nothing was written. Free space, or choose another --out", u64::MAX);
        assert!(refused.to_string().ends_with(&said), "{refused}");
        assert_eq!(Failure::from(refused).exit_code(), 4);
        assert!(!out.exists());
        // What is there of it takes no more room.
        std::fs::create_dir_all(out.join("teacher")).unwrap();
        for (name, bytes) in [("hidden.bin", 70), ("index.bin", 20), ("teacher/model.safetensors", 10)] {
            std::fs::write(out.join(name), vec![0; bytes]).unwrap();
        }
        let refused = request.check_space(u64::MAX).unwrap_err();
        assert!(matches!(refused, CacheError::Space { needed, .. } if needed == u64::MAX - 100), "{refused}");
    }
}
