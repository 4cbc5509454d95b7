//! Checks decoding, from the model to the last token.

use precast_plan::Gemm;
use precast_system::progress::{Progress, Unit};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use super::{Compared, DecodeCheck, DecodeChecker, decoded, prompts, sequences};
use crate::base::notes::note;
use crate::options::UsageError;
use crate::run::failure::Failure;

/// Compares logits of decoded tokens until there are as many as are asked for, or one differs.
///
/// # Errors
/// [`Failure`]; not where logits differ, which the result says.
pub fn check_decoding(request: &DecodeCheck) -> Result<Compared, Failure> {
    if request.forward.gemm == Gemm::Cublas {
        return Err(UsageError(
            "--gemm cublas: a row of cuBLASLt's GEMMs has other bits where there are other rows beside it, so \
            decoding has not those \
             of the forward pass: leave it out"
                .to_owned(),
        )
        .into());
    }
    let opened = request.forward.read()?;
    let vocab = opened.model.config().vocab;
    let mut checker = DecodeChecker::open(request, &opened)?;
    let slots = checker.plan.slots;
    if request.forward.heading && checker.sealed.device().compute_capability.is_none() {
        note("the simulated GPU executes the host references: their bits are compared, and no machine code's");
    }
    let mut rng = Pcg64Mcg::seed_from_u64(request.seed);
    let mut all = Compared::default();
    let progress = Progress::start("decoding", Unit::Things("tokens"));
    let mut drawn = 0;
    while all.tokens < request.tokens && all.first.is_none() {
        let round = sequences(slots, vocab, &mut rng);
        checker.score(&round)?;
        for rows in prompts(&round, checker.plan.prefill, &mut rng) {
            checker.prefill(&rows)?;
        }
        let mut done = all.tokens;
        for rows in decoded(&round) {
            checker.decode(&rows)?;
            done += rows.len() as u64;
            progress.set(done.min(request.tokens), request.tokens);
        }
        all += checker.compared(&round, drawn)?;
        drawn += round.len() as u64;
    }
    Ok(all)
}
