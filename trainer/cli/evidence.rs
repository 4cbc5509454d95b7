//! `precast evidence`

use std::path::{Path, PathBuf};

use clap::Args;
use precast_fatbins::evidence::{Evidence, Finding, Golden, Results, Whole};
use precast_fatbins::{Digest, signature_path};
use precast_system::{count, files, say};

use super::doctor;
use crate::base::notes::tell;
use crate::options::{DeviceOptions, Options};
use crate::programs::evidence::gather;
use crate::run::failure::Failure;
use crate::run::signing::SigningKey;

#[derive(Args)]
pub struct Arguments {
    /// File to write, which is not there yet
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    target: DeviceOptions,
    /// Seed of the self-test's random inputs: evidence of different seeds cannot be compared
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    /// Sign it with this secret key, as minisign writes it, into FILE.minisig; an encrypted one is opened with
    /// $PRECAST_KEY_PASSWORD
    #[arg(long, value_name = "KEY")]
    key: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { out, target, seed, key } = arguments;
    let signature = key.is_some().then(|| signature_path(&out));
    if let Some(there) = [&out].into_iter().chain(&signature).find(|path| path.exists()) {
        return Err(Failure::usage(format!("--out: {} is there already: name another file", there.display())));
    }
    let key = key.map(SigningKey::open).transpose()?;
    let options = Options { target, ..Options::default() };
    let evidence = gather(&options.target, seed, findings(&options), |what| tell(format_args!("{what} ...")))?;
    let text = evidence.encode();
    let write = |path: &Path, bytes: &[u8]| files::write_whole(path, bytes).map_err(Failure::io("write", path));
    write(&out, text.as_bytes())?;
    if let Some(key) = key {
        write(&signature_path(&out), key.sign(text.as_bytes())?.as_bytes())?;
    }
    let Evidence { chip, note, golden, .. } = &evidence;
    let Results::Whole(Whole { loads, checks, .. }) = &evidence.results else { unreachable!("it is whole") };
    say!("{} ({}), {}", chip.name, chip.arch, count(loads.len(), "kernel"));
    note.iter().for_each(|note| say!("note: {note}"));
    let faults: Vec<&String> = checks.iter().filter_map(|check| check.fault.as_ref()).collect();
    faults.iter().for_each(|fault| say!("FAIL  {fault}"));
    say!("{} checked", count(checks.len(), "launch"));
    for Golden { case, precision, fault, .. } in golden {
        say!("{case}, {precision}: {}", fault.as_deref().unwrap_or("as it must be"));
    }
    say!("sha256 {}", Digest::of(text.as_bytes()));
    let untrue = golden.iter().filter(|golden| golden.fault.is_some() && !golden.losses.is_empty()).count();
    match faults.len() + untrue {
        0 => Ok(()),
        failed => {
            let checked = checks.len() + golden.len();
            Err(Failure::Kernels(format!("{failed} of {checked} kernel checks failed on {}", chip.name)))
        }
    }
}

/// What doctor says of the machine. Of what is bad about kernels no more than that: a message may name a path.
fn findings(options: &Options) -> Vec<Finding> {
    let of = |finding: doctor::Finding| Finding {
        what: finding.what.to_owned(),
        ok: finding.ok,
        found: if finding.exit_code == 3 { "BAD".to_owned() } else { finding.found },
    };
    doctor::examine(options).into_iter().map(of).collect()
}
