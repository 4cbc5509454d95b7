//! Selection of variants for the card at hand, among those that give the same bits.

use crate::card::Card;
use crate::plan::Plan;
use crate::plan::node::{Build, Executor};
use crate::tuned::Table;
use crate::{Key, Variant};

impl Plan {
    /// Replaces variants by those that a table has as faster on a chip and that give the same bits: nothing but the
    /// time of the plan changes.
    pub fn select_by(&mut self, table: &Table, chip: &str) {
        let on = (chip, self.arch);
        self.reselect(|key, params, selected| key.select_by(table, on, params, selected));
    }

    /// Replaces variants by those that a card's own figures say are faster and that give the same bits.
    pub fn select_for(&mut self, card: Card) {
        let arch = self.arch;
        self.reselect(|key, params, selected| key.select_for(card, params, arch, selected));
    }

    fn reselect(&mut self, select: impl Fn(&Key, &[u8], Variant) -> Variant) {
        for launch in self.launches_mut() {
            let Executor::Kernel(build) = &mut launch.by else { continue };
            let variant = select(&launch.key, &launch.params, build.variant);
            *build = Build { variant, geometry: launch.key.kernel().geometry(variant, &launch.params) };
        }
    }
}
