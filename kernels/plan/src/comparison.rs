//! Results of a model and its reference on the same tokens.

/// Results per token of a reference and another form or model; 0 at masked targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenComparison<T> {
    /// `KL(reference || other)`, nats.
    pub kl: T,
    /// 1 if both have the same most likely token.
    pub agrees: T,
    /// Negative log likelihood of the target under the reference, nats.
    pub reference_nll: T,
    /// Negative log likelihood under the other.
    pub nll: T,
}

impl TokenComparison<&'static str> {
    /// Names of the columns.
    pub(crate) const NAMES: Self = Self { kl: "kl", agrees: "agrees", reference_nll: "reference_nll", nll: "nll" };
}

impl<T> TokenComparison<T> {
    /// Maps each column.
    pub fn map<U>(self, mut of: impl FnMut(T) -> U) -> TokenComparison<U> {
        let Self { kl, agrees, reference_nll, nll } = self;
        TokenComparison { kl: of(kl), agrees: of(agrees), reference_nll: of(reference_nll), nll: of(nll) }
    }

    /// Like [`Self::map`], for a function that may fail.
    ///
    /// # Errors
    /// The error of the first column that fails.
    pub fn try_map<U, E>(self, mut of: impl FnMut(T) -> Result<U, E>) -> Result<TokenComparison<U>, E> {
        let Self { kl, agrees, reference_nll, nll } = self;
        Ok(TokenComparison { kl: of(kl)?, agrees: of(agrees)?, reference_nll: of(reference_nll)?, nll: of(nll)? })
    }
}
