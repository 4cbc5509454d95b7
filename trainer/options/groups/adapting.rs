//! The adapter that trains while the student stays as it is.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args};
use precast_plan::Precision;

use super::Change;
use super::values::{above_zero, frozen_format};
use crate::inputs::adapter::{self, AdapterChoice, Lora, Target};
use crate::options::WeightFormat;
use crate::options::given::OptionSource;
use crate::options::usage::{UsageError, flag};

/// Options of a run in which an adapter trains while the student stays as it is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Adapter")]
pub struct AdapterOptions {
    /// Train a LoRA adapter of this rank; 0 for none
    ///
    /// The student itself stays as it is. The rank is at most 256.
    #[arg(long, value_name = "R", value_parser = RangedU64ValueParser::<u32>::new().range(0..=MOST_RANK))]
    pub lora_rank: Option<u32>,
    /// Scale the adapter's output by alpha / rank [default: twice the rank]
    #[arg(long, value_name = "A", value_parser = above_zero)]
    pub lora_alpha: Option<f64>,
    /// Projections with an adapter: all seven, or names, as in q_proj,v_proj
    #[arg(long, value_name = "all|LIST", default_value = "all", value_delimiter = ',')]
    pub lora_targets: Vec<Target>,
    /// Scale by alpha / sqrt(rank) instead: rank-stabilized LoRA
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, default_value_t = false, num_args = 0..=1,
          default_missing_value = "true")]
    pub lora_rslora: bool,
    /// Continue from this adapter instead of a new one: a PEFT directory, whose adapter_config.json gives rank, alpha and targets
    #[arg(long, value_name = "DIR", add = Change::OnAnyHost)]
    pub adapter: Option<PathBuf>,
    /// Form of the weights of a student with an adapter on the device, at the same bits: bf16 (the run's precision) or stored
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
    pub(crate) fn choice(&self, given: &BTreeMap<String, OptionSource>) -> Result<Option<AdapterChoice>, UsageError> {
        let of_new = ["lora_rank", "lora_alpha", "lora_targets", "lora_rslora"];
        let of_new = of_new.into_iter().find(|name| given.contains_key(*name)).map(flag);
        match (self.lora_rank, &self.adapter, of_new) {
            (_, Some(_), Some(option)) => Err(UsageError(format!(
                "{option} is of a new adapter, and --adapter goes on from one that is there, whose adapter_config.json says the \
                 same: leave one of them out"
            ))),
            (None, None, Some(option)) => {
                Err(UsageError(format!("{option} is of a new adapter: give --lora-rank too")))
            }
            (_, Some(directory), None) => Ok(Some(AdapterChoice::From { directory: directory.clone() })),
            (None | Some(0), None, _) => Ok(None),
            (Some(rank), None, _) => Ok(Some(AdapterChoice::New(Lora {
                rank,
                alpha: self.lora_alpha.unwrap_or(2.0 * f64::from(rank)),
                targets: self.lora_targets.iter().copied().collect(),
                rslora: self.lora_rslora,
            }))),
        }
    }

    /// Returns the form on the device of a student that stays as it is, since an adapter trains; none where it trains itself, and where
    /// the precision decides it.
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
                "--student-format bf16 cannot be combined with --precision int8, under which the base of an adapter is in int8: \
                 leave --student-format out, or use --precision bf16"
                    .to_owned(),
            )),
            (Some(_), format) if precision == Precision::Int8 => Ok(format),
            (Some(_), format) => Ok(Some(format.unwrap_or(WeightFormat::Bf16))),
            (None, Some(WeightFormat::Stored | WeightFormat::Int8)) => Err(UsageError(
                "--student-format stored is of a student that stays as it is, and this one trains: give --lora-rank or \
                 --adapter to train an adapter of it, or leave --student-format out"
                    .to_owned(),
            )),
            (None, _) => Ok(None),
        }
    }
}
