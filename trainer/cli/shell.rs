//! `precast completions` and `precast man`: what shells and people know of the command line.

use std::any::TypeId;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use precast_kernels::Arch;
use precast_plan::{Gemm, Moments, Precision, Recompute};
use precast_system::{files, say};

use super::command::Arguments;
use crate::inputs::adapter::Target;
use crate::options::schedule::Schedule;
use crate::options::{DeviceChoice, Final, SlotChoice, WeightFormat};
use crate::ranks::Gpus;
use crate::run::failure::Failure;

/// Prints what a shell completes.
pub fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut completed(Arguments::command()), "precast", &mut script);
    say!("{}", String::from_utf8_lossy(&script).trim_end());
}

/// A command whose options say what a shell may offer as their values: their parsers read text, which says nothing of
/// it.
pub(super) fn completed(command: Command) -> Command {
    command.mut_args(with_values).mut_subcommands(completed)
}

fn with_values(option: Arg) -> Arg {
    let parser = option.get_value_parser();
    if !option.get_action().takes_values() || parser.possible_values().is_some() {
        return option;
    }
    let of_type = parser.type_id();
    let names = VALUES.iter().find(|(known, _)| of_type == known());
    match names {
        Some((_, names)) => {
            // A parser may take fewer values than its type has.
            let alone = Command::new("").no_binary_name(true).arg(Arg::new("value").value_parser(parser.clone()));
            let takes = |name: &&str| alone.clone().try_get_matches_from([name]).is_ok();
            option.value_parser(PossibleValuesParser::new(names().into_iter().filter(takes).collect::<Vec<_>>()))
        }
        None if of_type == TypeId::of::<PathBuf>() => {
            let is_directory = option.get_value_names() == Some(&["DIR".into()]);
            if is_directory { option.value_hint(ValueHint::DirPath) } else { option }
        }
        None if option.get_value_hint() != ValueHint::Unknown => option,
        // A number, a text: no file.
        None => option.value_hint(ValueHint::Other),
    }
}

/// The values that a type has, or the most usual of them.
type Names = fn() -> Vec<&'static str>;

const VALUES: [(fn() -> TypeId, Names); 12] = [
    (TypeId::of::<Precision>, || texts(Precision::ALL)),
    (TypeId::of::<Recompute>, || texts(Recompute::ALL)),
    (TypeId::of::<Gemm>, || texts(Gemm::ALL)),
    (TypeId::of::<Moments>, || texts(Moments::ALL)),
    (TypeId::of::<Schedule>, || texts(Schedule::ALL)),
    (TypeId::of::<Final>, || texts(Final::ALL)),
    (TypeId::of::<WeightFormat>, || texts(WeightFormat::ALL)),
    (TypeId::of::<DeviceChoice>, || {
        texts([DeviceChoice::Auto, DeviceChoice::Cuda(0), DeviceChoice::Portable(0), DeviceChoice::Sim])
    }),
    (TypeId::of::<Arch>, || Arch::GPUS.map(Arch::argument).to_vec()),
    (TypeId::of::<Target>, || Target::names().collect()),
    (TypeId::of::<Gpus>, || vec!["all"]),
    (TypeId::of::<SlotChoice>, || vec!["auto"]),
];

/// Of the whole program, which ends when it has printed them.
fn texts<T: ToString>(values: impl IntoIterator<Item = T>) -> Vec<&'static str> {
    values.into_iter().map(|value| &*value.to_string().leak()).collect()
}

/// Writes a page for each command.
pub fn man(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory).map_err(Failure::io("create", directory))?;
    let mut inside = std::fs::read_dir(directory).map_err(Failure::io("read", directory))?;
    if inside.next().is_some() {
        let error = std::io::Error::new(ErrorKind::AlreadyExists, "it is not empty: name a new directory");
        return Err(Failure::io("write to", directory)(error));
    }
    let write = |aside: &Path| clap_mangen::generate_to(Arguments::command(), aside);
    files::write_directory(directory, write).map_err(Failure::io("write", directory))?;
    say!("{}", directory.display());
    Ok(())
}
