//! The launches of a plan: kernels of the bundle, and products that cuBLASLt computes.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;

use itertools::Itertools;
use precast_kernels::{Arch, Key, KeyVariant};
use precast_plan::{Launch, Plan, TrainingPlan, keys};
use precast_system::count;
use serde::{Serialize, Serializer};

use crate::device::bundle::embedded;
use crate::device::remedy::build_command;
use crate::options;
use crate::run::failure::Failure;

/// The kernels of a plan.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Kernels {
    pub list: Vec<Kernel>,
    /// It is said of one without a digest.
    #[serde(skip)]
    pub absent: &'static str,
}

/// A kernel of a plan.
#[derive(Debug, Serialize)]
pub(super) struct Kernel {
    #[serde(flatten, serialize_with = "pair")]
    pub pair: KeyVariant,
    pub launches: usize,
    /// Digest of its code, where the run's bundle holds it.
    pub sha256: Option<String>,
}

/// Kernels of a plan that its run would not find.
#[derive(Debug, Serialize)]
pub(super) struct Missing {
    pub count: usize,
    /// Where they are looked for.
    #[serde(skip)]
    place: String,
    /// The command that builds them.
    command: String,
}

/// Products of a plan that cuBLASLt computes.
#[derive(Debug, Serialize)]
pub(super) struct Products {
    pub products: Vec<Product>,
    /// The kernels that are not needed for that.
    #[serde(serialize_with = "texts")]
    pub in_place_of: Vec<KeyVariant>,
}

#[derive(Debug, Serialize)]
pub(super) struct Product {
    #[serde(serialize_with = "crate::base::record_text::display")]
    pub key: Key,
    pub launches: usize,
}

fn pair<S: Serializer>(pair: &KeyVariant, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map([("key", pair.key.to_string()), ("variant", pair.variant.to_string())])
}

fn texts<S: Serializer>(list: &[KeyVariant], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(list.iter().map(ToString::to_string))
}

impl Kernels {
    pub fn of(options: &options::Kernels, arch: Arch, plan: &Plan) -> Result<Self, Failure> {
        let mut digests = digests(options, arch, plan)?;
        let launches = counts(plan.launches().filter_map(Launch::pair));
        let kernel = |(pair, launches)| Kernel { sha256: digests.remove(&pair), pair, launches };
        let list = launches.into_iter().map(kernel).collect();
        // The simulated GPU executes references: it takes no kernels from a bundle.
        let is_reference = arch == Arch::Sim && options.bundle.is_none();
        Ok(Self { list, absent: if is_reference { "reference" } else { "not in the bundle" } })
    }
}

impl Missing {
    /// None where every kernel is there, or is a reference.
    pub fn of(options: &options::Kernels, models: Vec<String>, arch: Arch, kernels: &Kernels) -> Option<Self> {
        let bundle = options.bundle.as_ref();
        if arch == Arch::Sim && bundle.is_none() {
            return None;
        }
        let count = kernels.list.iter().filter(|kernel| kernel.sha256.is_none()).count();
        let place =
            bundle.map_or_else(|| "embedded in this trainer".to_owned(), |path| format!("in {}", path.display()));
        let models: Vec<String> = models.into_iter().unique().collect();
        (count > 0).then(|| Self { count, place, command: build_command(&models, &[arch]) })
    }

    /// Refuses a run that would miss them.
    pub fn refusal(&self) -> Failure {
        Failure::Kernels(self.to_string())
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count: missing, place, command } = self;
        let verb = if *missing == 1 { "is" } else { "are" };
        write!(f, "{} {verb} not {place}: {command}, then --bundle run.bundle", count(*missing, "kernel"))
    }
}

impl Products {
    /// None where cuBLASLt computes nothing; `by_bundle` is the plan without it.
    pub fn of(plan: &Plan, by_bundle: impl FnOnce() -> Result<TrainingPlan, Failure>) -> Result<Option<Self>, Failure> {
        let products = counts(plan.cublas_gemms().map(|product| product.key.clone()));
        if products.is_empty() {
            return Ok(None);
        }
        let in_place_of = keys(&by_bundle()?.plan).difference(&keys(plan)).cloned().collect();
        let products = products.into_iter().map(|(key, launches)| Product { key, launches }).collect();
        Ok(Some(Self { products, in_place_of }))
    }
}

fn counts<K: Ord + Hash>(all: impl Iterator<Item = K>) -> BTreeMap<K, usize> {
    all.counts().into_iter().collect()
}

/// The digest of each kernel that the run's bundle holds.
fn digests(options: &options::Kernels, arch: Arch, plan: &Plan) -> Result<BTreeMap<KeyVariant, String>, Failure> {
    if options.bundle.is_none() && (arch == Arch::Sim || embedded(Some(arch))?.is_none()) {
        return Ok(BTreeMap::new());
    }
    let source = options.find(arch, plan)?;
    let bundle = source.open()?;
    bundle.verify().map_err(|error| source.refuse(error))?;
    let modules = bundle.modules(arch).map_err(|error| source.refuse(error.into()))?;
    let of_code = modules.into_iter().filter_map(|m| Some((m.pair, m.entry.code.as_ref()?.digest.to_string())));
    Ok(of_code.collect())
}
