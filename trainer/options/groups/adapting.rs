//! The adapter that trains while the student stays as it is.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args};
use precast_plan::Precision;

use super::Change;
use super::values::{above_zero, frozen_format};
use crate::inputs::adapter::{self, AdapterChoice, Lora, Target};
use crate::options::usage::first_asked;
use crate::options::{UsageError, WeightFormat};

/// Options of a run in which an adapter trains while the student stays as it is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Adapter")]
pub struct AdapterOptions {
    /// Train a LoRA adapter of this rank; 0 for none
    ///
    /// All other weights stay as they are. The rank is at most 256.
    #[arg(long, value_name = "R", value_parser = RangedU64ValueParser::<u32>::new().range(0..=MOST_RANK))]
    pub lora_rank: Option<u32>,
    /// Scale the adapter's output by alpha / rank [default: twice the rank]
    #[arg(long, value_name = "A", value_parser = above_zero)]
    pub lora_alpha: Option<f64>,
    /// Projections with an adapter: all, or names, as in q_proj,v_proj [default: all]
    #[arg(long, value_name = "all|LIST", value_delimiter = ',')]
    pub lora_targets: Option<Vec<Target>>,
    /// Scale by alpha / sqrt(rank) instead: rank-stabilized LoRA
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true")]
    pub lora_rslora: bool,
    /// Continue from this adapter instead of a new one: a PEFT directory, whose adapter_config.json gives rank, alpha
    /// and targets
    #[arg(long, value_name = "DIR", add = Change::OnAnyHost)]
    pub adapter: Option<PathBuf>,
    /// Form on the device of the weights below an adapter, at the same bits: bf16 (the run's precision) or stored
    /// (matrices as a GGUF file holds them: QLoRA) [default: bf16]
    #[arg(long, value_name = "FORM", value_parser = frozen_format, help_heading = "Memory", add = Change::AtResume)]
    pub student_format: Option<WeightFormat>,
}

/// The largest rank, as a range has it.
const MOST_RANK: u64 = adapter::MOST_RANK as u64;

impl AdapterOptions {
    /// The adapter that trains; none where the student itself does.
    ///
    /// # Errors
    /// [`UsageError`] for options that do not go together.
    pub(crate) fn choice(&self) -> Result<Option<AdapterChoice>, UsageError> {
        let Self { lora_rank, lora_alpha, lora_targets, lora_rslora, .. } = self;
        let of_new = first_asked!(lora_rank, lora_alpha, lora_targets, lora_rslora);
        match (*lora_rank, &self.adapter, of_new) {
            (_, Some(_), Some(option)) => Err(UsageError(format!(
                "{option} cannot be combined with --adapter, whose adapter_config.json gives rank, alpha and \
                targets: leave one of \
                 them out"
            ))),
            (None, None, Some(option)) => Err(UsageError(format!("{option} requires --lora-rank"))),
            (_, Some(directory), None) => Ok(Some(AdapterChoice::From { directory: directory.clone() })),
            (None | Some(0), None, _) => Ok(None),
            (Some(rank), None, _) => Ok(Some(AdapterChoice::New(Lora {
                rank,
                alpha: lora_alpha.unwrap_or(2.0 * f64::from(rank)),
                targets: lora_targets.as_deref().unwrap_or(&[Target::ALL]).iter().copied().collect(),
                rslora: *lora_rslora,
            }))),
        }
    }

    /// Returns the form on the device of a student that stays as it is, since an adapter trains; none where it trains
    /// itself, and where the precision decides it.
    ///
    /// # Errors
    /// [`UsageError`] for a format that such a student cannot have.
    pub(crate) fn student_format(
        &self,
        adapter: Option<&AdapterChoice>,
        precision: Precision,
    ) -> Result<Option<WeightFormat>, UsageError> {
        match (adapter, self.student_format) {
            (Some(_), Some(WeightFormat::Bf16)) if precision == Precision::Int8 => Err(UsageError(
                "--student-format bf16 cannot be combined with --precision int8, under which the base of an adapter \
                is in int8: \
                 leave --student-format out, or use --precision bf16"
                    .to_owned(),
            )),
            (Some(_), format) if precision == Precision::Int8 => Ok(format),
            (Some(_), format) => Ok(Some(format.unwrap_or(WeightFormat::Bf16))),
            (None, Some(WeightFormat::Stored | WeightFormat::Int8)) => Err(UsageError(
                "--student-format stored requires --lora-rank or --adapter: weights that train cannot stay as their \
                file stores \
                 them. Give one of these, or leave --student-format out"
                    .to_owned(),
            )),
            (None, _) => Ok(None),
        }
    }
}
