//! `precast-aot publish` and `precast-aot fetch`

use precast_kernels::KERNELS;
use std::path::{Path, PathBuf};

use clap::Args;
use precast_aot::home;
use precast_aot::lock::{self, Comparison, NotLocked, Part};
use precast_aot::publish::{self, title};
use precast_core::shell::quoted;
use precast_fatbins::{Bundle, Digest, Lock};
use precast_models::{LOCK, Model, Selection};
use precast_system::{count, say};

use super::compile::Compiler;
use super::failure::Failure;
use super::io::{read_bundle, refuse_inputs};
use super::sign::Key;
use super::targets::{Archs, Locks, Models, Trusted};

#[derive(Args)]
pub struct Publish {
    /// Destination: a directory, or a file that ends in .tar
    #[arg(long, value_name = "DIR|FILE.tar")]
    to: PathBuf,
    /// Publish this bundle instead of building one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["models", "arch"])]
    bundle: Option<PathBuf>,
    #[command(flatten)]
    models: Models,
    #[command(flatten)]
    archs: Archs,
    #[command(flatten)]
    compiler: Compiler,
    #[command(flatten)]
    locks: Locks,
    #[command(flatten)]
    key: Key,
}

pub fn publish(arguments: &Publish) -> Result<(), Failure> {
    let (models, key) = (arguments.models.files(), &arguments.key.key);
    refuse_inputs(&arguments.to, models.iter().chain(&arguments.bundle).chain(key))?;
    // Checked before minutes of compiling.
    publish::Layout::check_replaceable(&arguments.to).map_err(publish::PublishError::from)?;
    let bundle = match &arguments.bundle {
        Some(path) => read_bundle(path)?,
        None => {
            let selection = Selection::of_models(arguments.models.find()?, arguments.archs.arch.clone());
            arguments.compiler.build(&selection.request())?.encode()
        }
    };
    // An invalid bundle is reported with the path of its file.
    let failure = |error: publish::PublishError| match (error, &arguments.bundle) {
        (publish::PublishError::Bundle(error), Some(path)) => Failure::Bundle { path: path.clone(), error },
        (error, _) => error.into(),
    };
    let read = Bundle::read(&bundle, &KERNELS).and_then(|read| read.verify().map(|()| read));
    let locks = locks_of(&read.map_err(|error| failure(error.into()))?, &arguments.locks.directory())?;
    let sign = |bytes: &[u8]| arguments.key.sign(bytes).map_err(|error| error.to_string());
    let signer: Option<publish::Signer<'_>> = if arguments.key.is_given() { Some(&sign) } else { None };
    let layout = publish::publish(&bundle, &KERNELS, &locks, signer).map_err(failure)?;
    layout.write(&arguments.to).map_err(publish::PublishError::from)?;
    let signed = if arguments.key.is_given() { "signed" } else { "not signed: no --key" };
    say!("{}: bundle {}, {}, {signed}", arguments.to.display(), Digest::of(&bundle), count(locks.len(), "lock"));
    Ok(())
}

/// Returns the locks of the models that a bundle is built for, by name; of the shared one, their kernels' lines.
fn locks_of(bundle: &Bundle<'_>, directory: &Path) -> Result<Vec<(String, Lock)>, Failure> {
    let (built_for, archs) = (&bundle.manifest().built_for, bundle.archs());
    let mut built_in = Model::built_in();
    let own = built_for.iter().filter(|name| built_in.iter().all(|model| model.name != **name)).map(|name| {
        let lock = lock::read(directory, name)?;
        let command = format!("{LOCK} --model {}", quoted(name));
        Ok((name.clone(), lock.ok_or_else(|| Failure::NoLock { path: lock::path(directory, name), command })?))
    });
    let mut locks: Vec<(String, Lock)> = own.collect::<Result<_, Failure>>()?;
    built_in.retain(|model| built_for.contains(&model.name));
    let parts = Selection::of_models(built_in, Vec::new()).locked();
    let Comparison { changes, unlocked } = lock::compare(bundle.manifest(), &parts, &archs, directory)?;
    if let Some(Part { name, command, .. }) = unlocked.first() {
        return Err(Failure::NoLock { path: lock::path(directory, name), command: command.clone() });
    }
    if !changes.is_empty() {
        let (directory, command) = (directory.to_owned(), LOCK.to_owned());
        return Err(NotLocked { directory, changes, command }.into());
    }
    // As locked, so these are its lines.
    locks.extend(parts.into_iter().map(|part| {
        let lock = lock::of(bundle.manifest(), &part, &archs);
        (part.name, lock)
    }));
    Ok(locks)
}

#[derive(Args)]
pub struct Fetch {
    /// Published bundle: a directory or a tar file
    #[arg(long, value_name = "DIR|FILE.tar")]
    from: PathBuf,
    /// Directory to install into [default: fatbins/published of the checkout]
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    #[command(flatten)]
    trusted: Trusted,
}

pub fn fetch(arguments: &Fetch) -> Result<(), Failure> {
    let keys = arguments.trusted.keys()?;
    let to = arguments.to.clone().unwrap_or_else(|| home::of_checkout("fatbins").join("published"));
    refuse_inputs(&to, [&arguments.from])?;
    let fetched = publish::fetch(&arguments.from, &keys, &KERNELS)?;
    fetched.install(&to).map_err(publish::PublishError::from)?;
    say!("{}: {}", to.display(), fetched.files.keys().cloned().collect::<Vec<_>>().join(", "));
    say!("bundle {}", Digest::of(&fetched.files[title::BUNDLE]));
    match &fetched.signed_by {
        Some(key) => say!("signed by {key}"),
        None => say!("signature not checked: no --trusted-key"),
    }
    say!("build with it: PRECAST_FATBINS={} cargo build --release --features sm_89 (sm_90, sm_121)", to.display());
    Ok(())
}
