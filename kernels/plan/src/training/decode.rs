//! Lowers the stage that decodes under the student.

use super::step::Step;
use crate::cache;
use crate::decoding::Decoding;
use crate::model::{Model, Resident};
use crate::ops::Ops;
use precast_core::plan::{Builder, Lifetime};

impl Step<'_> {
    /// Lowers decoding, if it was requested: by the weights that launches of a step read, in the memory of its
    /// activations.
    pub fn decode(&self, b: &mut Builder) -> Option<Decoding> {
        let (request, config, x) = (self.run.decode?, self.run.student, self.run.dtype());
        b.start_stage();
        let decoding = Decoding::declare(b, config, request, Lifetime::Stage);
        let caches = cache::pool(b, config, request.slots, (x, Lifetime::Stage));
        let resident = Resident { caches, ..self.models.student.clone() };
        let ops = &mut Ops::new(b, decoding.prefill.most_rows, x, None);
        decoding.lower(ops, &Model { name: "decode", config, resident: &resident }, request.sampling);
        b.end_stage();
        Some(decoding)
    }
}
