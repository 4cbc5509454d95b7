//! What two forms of one model make of the same tokens.

/// What two forms of a model, the first of them the reference, make of each token; 0 where its target is masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison<T> {
    /// `KL(reference || other)`, nats.
    pub kl: T,
    /// 1 where both choose the same token first.
    pub agrees: T,
    /// Negative log likelihood of the target under the reference, nats.
    pub reference_nll: T,
    /// The same under the other.
    pub nll: T,
}

impl Comparison<&'static str> {
    /// The names of the columns.
    pub(crate) const NAMES: Self = Self { kl: "kl", agrees: "agrees", reference_nll: "reference_nll", nll: "nll" };
}

impl<T> Comparison<T> {
    /// Something else of each.
    pub fn map<U>(self, mut of: impl FnMut(T) -> U) -> Comparison<U> {
        let Self { kl, agrees, reference_nll, nll } = self;
        Comparison { kl: of(kl), agrees: of(agrees), reference_nll: of(reference_nll), nll: of(nll) }
    }

    /// The same, if it can be had of each.
    ///
    /// # Errors
    /// The first one's.
    pub fn try_map<U, E>(self, mut of: impl FnMut(T) -> Result<U, E>) -> Result<Comparison<U>, E> {
        let Self { kl, agrees, reference_nll, nll } = self;
        Ok(Comparison { kl: of(kl)?, agrees: of(agrees)?, reference_nll: of(reference_nll)?, nll: of(nll)? })
    }
}
