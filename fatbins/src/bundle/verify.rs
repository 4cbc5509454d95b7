//! Verifies bundles: digests, sources, and the facts in each cubin.

use precast_core::{Arch, KeyVariant, OPTIONS};
use rayon::prelude::*;

use super::error::BundleError;
use super::read::Bundle;
use crate::Digest;
use crate::cubin::CubinFacts;
use crate::foreign::Foreign;
use crate::manifest::ModuleEntry;
use crate::stale::{Stale, StaleModule};

/// Findings in a bundle whose cubins match their digests.
struct Findings {
    /// Another program, core or format.
    foreign: Option<Foreign>,
    /// Modules of other sources.
    stale: Option<Stale>,
    /// The first false claim.
    untrue: Option<BundleError>,
}

impl<K> Bundle<'_, K> {
    /// Checks every digest; then that the bundle is this program's and that its sources would give every module; then
    /// every cubin's facts against the manifest and its key.
    ///
    /// # Errors
    /// An altered cubin, else [`BundleError::Foreign`], else [`BundleError::Stale`] with all stale modules, else the
    /// first false claim.
    pub fn verify(&self) -> Result<(), BundleError> {
        let Findings { foreign, stale, untrue } = self.findings()?;
        let refused = foreign.map(BundleError::from).or(stale.map(BundleError::from)).or(untrue);
        refused.map_or(Ok(()), Err)
    }

    /// Checks a bundle for inspection only: like [`Self::verify`], but returns why it is not this program's. Cubins of
    /// other sources are compared with the manifest alone.
    ///
    /// # Errors
    /// An altered cubin, else the first false claim.
    pub fn examine(&self) -> Result<Option<BundleError>, BundleError> {
        let Findings { foreign, stale, untrue } = self.findings()?;
        untrue.map_or(Ok(foreign.map(BundleError::from).or(stale.map(BundleError::from))), Err)
    }

    fn findings(&self) -> Result<Findings, BundleError> {
        let modules = self.manifest.modules.par_iter().zip(&self.placed);
        let altered = modules.clone().find_map_first(|(module, at)| self.verify_digest(module, *at).err());
        altered.map_or(Ok(()), Err)?;
        let rows = modules.map(|(module, at)| match self.of_program(module) {
            Ok((pair, arch)) => (None, self.verify_claims(module, *at, &pair, arch).err()),
            Err(stale) => (Some(stale), self.verify_cubin(module, *at, None).err()),
        });
        let (stale, untrue): (Vec<_>, Vec<_>) = rows.collect::<Vec<_>>().into_iter().unzip();
        let stale: Vec<StaleModule> = stale.into_iter().flatten().collect();
        let stale = (!stale.is_empty()).then(|| Stale::new(&self.manifest, stale, self.kernels));
        let foreign = Foreign::check(&self.manifest, self.kernels).err();
        let untrue = untrue.into_iter().flatten().next();
        // Other sources may have other options.
        let untrue = untrue.or_else(|| if stale.is_none() { self.verify_options().err() } else { None });
        Ok(Findings { foreign, stale, untrue })
    }

    fn verify_digest(&self, module: &ModuleEntry, offset: Option<u64>) -> Result<(), BundleError> {
        let (Some(offset), Some(code)) = (offset, &module.code) else { return Ok(()) };
        let (expected, found) = (code.digest, Digest::of(self.image(offset, code)));
        if found == expected {
            return Ok(());
        }
        Err(BundleError::Digest { module: module.to_string(), offset, expected, found })
    }

    fn verify_options(&self) -> Result<(), BundleError> {
        let has_code = self.manifest.modules.iter().any(|module| module.code.is_some());
        let (expected, found) = (OPTIONS.join(" "), self.manifest.options.join(" "));
        if has_code && expected != found {
            return Err(BundleError::Claim { module: "manifest".to_owned(), what: "options", expected, found });
        }
        Ok(())
    }

    /// Returns the key and variant of a module that this program would make from the same sources.
    fn of_program(&self, module: &ModuleEntry) -> Result<(KeyVariant, Arch), StaleModule> {
        let (pair, arch) = module.typed(self.kernels).map_err(|_| StaleModule::Unknown(module.to_string()))?;
        if module.source != pair.source_digest(arch) {
            return Err(StaleModule::Source(format!("{module}{}", pair.of_file())));
        }
        Ok((pair, arch))
    }

    /// Compares a module's key with the manifest, then both with the cubin.
    fn verify_claims(
        &self,
        module: &ModuleEntry,
        offset: Option<u64>,
        pair: &KeyVariant,
        arch: Arch,
    ) -> Result<(), BundleError> {
        claim(module, "parameter block size", &pair.key.params_bytes(), &module.params_bytes)?;
        let Some(facts) = self.verify_cubin(module, offset, Some(pair))? else {
            return claim(module, "machine code", &(arch != Arch::Sim), &false);
        };
        claim(module, "entry symbol", &pair.entry(arch), &facts.entry)?;
        let threads = pair.variant.threads();
        // A plain file bounds the threads of a block; without a reference the caller chooses them.
        let most = pair.key.plain().map_or(facts.max_threads, |_| facts.max_threads.min(threads));
        claim(module, "largest block", &threads, &most)
    }

    /// Compares the manifest's claims with the cubin's facts, and returns these; none for a module without a cubin.
    fn verify_cubin(
        &self,
        module: &ModuleEntry,
        offset: Option<u64>,
        pair: Option<&KeyVariant>,
    ) -> Result<Option<CubinFacts>, BundleError> {
        let (Some(offset), Some(code)) = (offset, &module.code) else { return Ok(None) };
        let image = self.image(offset, code);
        let facts = match pair {
            Some(pair) => CubinFacts::of_pair(image, pair, &code.entry),
            // A plain kernel has a key without fields, and only its program knows its parameters: a cubin of several
            // entries or parameters under such a key is taken for one.
            None => CubinFacts::read(image).or_else(|error| match module.key.ends_with("{}") {
                true => CubinFacts::of_entry(image, &code.entry)
                    .map(|facts| CubinFacts { params_bytes: module.params_bytes, ..facts }),
                false => Err(error),
            }),
        };
        let facts = facts.map_err(|source| BundleError::Cubin { module: module.to_string(), source })?;
        claim(module, "architecture", &module.arch()?.target(), &facts.arch.as_str())?;
        claim(module, "entry symbol", &code.entry, &facts.entry)?;
        claim(module, "parameter block size", &module.params_bytes, &facts.params_bytes)?;
        claim(module, "registers", &code.registers, &facts.registers)?;
        claim(module, "static shared memory", &code.static_shared_bytes, &facts.static_shared_bytes)?;
        claim(module, "stack frame", &code.stack_bytes, &facts.stack_bytes)?;
        claim(module, "largest block", &code.max_threads, &facts.max_threads)?;
        Ok(Some(facts))
    }
}

fn claim(
    module: &ModuleEntry,
    what: &'static str,
    expected: &dyn ToString,
    found: &dyn ToString,
) -> Result<(), BundleError> {
    let (expected, found) = (expected.to_string(), found.to_string());
    if expected == found {
        return Ok(());
    }
    Err(BundleError::Claim { module: module.to_string(), what, expected, found })
}
