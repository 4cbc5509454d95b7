//! Verifying bundles: digests, sources, and what each cubin says of itself.

use precast_kernels::{Arch, KeyVariant, OPTIONS};
use rayon::prelude::*;

use super::{Bundle, BundleError};
use crate::Digest;
use crate::cubin::CubinFacts;
use crate::manifest::ModuleEntry;
use crate::stale::{Stale, StaleModule};

/// What verification finds wrong with a module, by what it is told before.
enum Finding {
    Altered(BundleError),
    Stale(StaleModule),
    Untrue(BundleError),
}

impl Bundle<'_> {
    /// Checks every digest; then that this program would make every module from the same sources; then what every cubin
    /// says of itself against the manifest and its key.
    ///
    /// # Errors
    /// An altered cubin before [`BundleError::Stale`] with all stale modules, before a claim that is not true.
    pub fn verify(&self) -> Result<(), BundleError> {
        let modules = self.manifest.modules.par_iter().zip(&self.placed);
        let findings: Vec<Finding> = modules.filter_map(|(module, at)| self.verify_module(module, *at).err()).collect();
        let (mut stale, mut untrue) = (Vec::new(), Vec::new());
        for finding in findings {
            match finding {
                Finding::Altered(error) => return Err(error),
                Finding::Stale(module) => stale.push(module),
                Finding::Untrue(error) => untrue.push(error),
            }
        }
        if !stale.is_empty() {
            return Err(Stale::new(&self.manifest, stale).into());
        }
        untrue.into_iter().next().map_or(Ok(()), Err)?;
        let has_code = self.manifest.modules.iter().any(|module| module.code.is_some());
        let (expected, found) = (OPTIONS.join(" "), self.manifest.options.join(" "));
        if has_code && expected != found {
            return Err(BundleError::Claim { module: "manifest".to_owned(), what: "options", expected, found });
        }
        Ok(())
    }

    fn verify_module(&self, module: &ModuleEntry, offset: Option<u64>) -> Result<(), Finding> {
        if let (Some(offset), Some(code)) = (offset, &module.code) {
            let found = Digest::of(self.image(offset, code));
            if found != code.digest {
                let (module, expected) = (module.to_string(), code.digest);
                return Err(Finding::Altered(BundleError::Digest { module, offset, expected, found }));
            }
        }
        let typed = module.typed().map_err(|_| Finding::Stale(StaleModule::Unknown(module.to_string())));
        let (pair, arch) = typed?;
        if module.source != pair.source_digest(arch) {
            return Err(Finding::Stale(StaleModule::Source(module.to_string())));
        }
        self.verify_claims(module, offset, &pair, arch).map_err(Finding::Untrue)
    }

    fn verify_claims(
        &self,
        module: &ModuleEntry,
        offset: Option<u64>,
        pair: &KeyVariant,
        arch: Arch,
    ) -> Result<(), BundleError> {
        let claim = |what, expected: &dyn ToString, found: &dyn ToString| {
            let (expected, found) = (expected.to_string(), found.to_string());
            if expected == found {
                return Ok(());
            }
            Err(BundleError::Claim { module: module.to_string(), what, expected, found })
        };
        claim("parameter block size", &pair.key.params_bytes(), &module.params_bytes)?;
        let (Some(offset), Some(code)) = (offset, &module.code) else {
            return claim("machine code", &(arch != Arch::Sim), &false);
        };
        let facts = CubinFacts::read(self.image(offset, code))
            .map_err(|source| BundleError::Cubin { module: module.to_string(), source })?;
        claim("architecture", &arch.target(), &facts.arch.as_str())?;
        claim("entry symbol", &pair.entry(arch), &facts.entry)?;
        claim("entry symbol", &code.entry, &facts.entry)?;
        claim("parameter block size", &module.params_bytes, &facts.params_bytes)?;
        claim("registers", &code.registers, &facts.registers)?;
        claim("static shared memory", &code.static_shared_bytes, &facts.static_shared_bytes)?;
        claim("stack frame", &code.stack_bytes, &facts.stack_bytes)?;
        claim("largest block", &code.max_threads, &facts.max_threads)?;
        claim("largest block", &pair.variant.threads(), &facts.max_threads)
    }
}
