//! The first lines of a run: where it runs, with which kernels, on which models.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::path::Path;

use precast_fatbins::Digest;
use precast_runtime::{Device, Rows};
use precast_system::count;

use crate::base::roles::Role;
use crate::device::fit::{DENSE, is_stored_dense};
use crate::device::run_models::RunModels;
use crate::inputs::adapter::Adapter;
use crate::inputs::checkpoint::Weights;
use crate::inputs::data::{Corpus, Summary};
use crate::options::{RunConfig, WeightFormat};

/// Lines of a name and what it is.
pub struct Heading(Vec<(Cow<'static, str>, String)>);

/// Names the row that a device runs, and the device if it stands in for another.
pub fn arch(device: &Device) -> String {
    let Some(Rows { launches, code }) = device.rows else { return "none".to_owned() };
    let own = launches.compute_capability();
    match device.compute_capability {
        _ if launches != code => format!("launches of {}, on {}", launches.argument(), device.name),
        Some((major, minor)) if own != device.compute_capability => {
            format!("{}, whose code {major}.{minor} runs", launches.argument())
        }
        _ => launches.argument().to_owned(),
    }
}

impl Heading {
    /// Creates the heading for a device and as many kernels of a bundle.
    pub fn new(device: &Device, bundle: Digest, kernels: usize) -> Self {
        let capability = device.compute_capability.map(|(a, b)| format!(", compute capability {a}.{b}"));
        let driver = device.driver_version.map(|(a, b)| format!(", driver for CUDA {a}.{b}"));
        let about = [Some(format!("{} ({})", device.name, device.ordinal)), capability, driver];
        Self(vec![
            ("device".into(), about.into_iter().flatten().collect()),
            ("arch".into(), arch(device)),
            ("bundle".into(), format!("{bundle}, {}", count(kernels, "kernel"))),
        ])
    }

    /// And something else, if there is any.
    #[must_use]
    pub fn with(mut self, name: impl Into<Cow<'static, str>>, what: Option<String>) -> Self {
        self.0.extend(what.map(|what| (name.into(), what)));
        self
    }

    /// And a model: where it is and how it is stored, and that this is dense where blocks are asked for.
    #[must_use]
    pub fn model(
        mut self,
        role: impl Into<Cow<'static, str>>,
        path: &Path,
        weights: &dyn Weights,
        asked: WeightFormat,
    ) -> Self {
        let dense = if is_stored_dense(asked, &weights.formats()) { format!(", {DENSE}") } else { String::new() };
        self.0.push((role.into(), format!("{}: {}{dense}", path.display(), weights.stored())));
        self
    }

    /// And the models of a run, the teachers first, and the adapter that trains.
    #[must_use]
    pub fn models(self, config: &RunConfig, models: &RunModels<impl Borrow<dyn Weights>>) -> Self {
        let places = config.models();
        let all = places.iter().zip(models.models.iter());
        let of_models = all.fold(self, |lines, ((role, path), (_, model))| {
            let (asked, cache) = match role {
                Role::Teacher(number) => (config.teacher_format, models.caches[number].as_ref()),
                Role::Student => (config.student_format, None),
            };
            if let Some(cache) = cache {
                return lines.with(config.name_of(role), Some(cache.described()));
            }
            lines.model(config.name_of(role), path, model.borrow(), asked.unwrap_or_default())
        });
        models.adapter.iter().fold(of_models, Self::adapter)
    }

    /// And data: the files, and what a pass over them comes to, if that is known.
    #[must_use]
    pub fn data(mut self, corpus: &Corpus, summary: Option<Summary>) -> Self {
        let pass = summary.map_or_else(|| "read while the run trains".to_owned(), |summary| summary.to_string());
        self.0.push(("data".into(), format!("{}: {pass}", corpus.what())));
        self.with("ends", corpus.ends())
    }

    /// And the adapter of a model.
    #[must_use]
    pub fn adapter(mut self, adapter: &Adapter) -> Self {
        self.0.push(("adapter".into(), adapter.to_string()));
        self
    }
}

impl fmt::Display for Heading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (name, what)) in self.0.iter().enumerate() {
            write!(f, "{}{name:<8} {what}", if index > 0 { "\n" } else { "" })?;
        }
        Ok(())
    }
}
