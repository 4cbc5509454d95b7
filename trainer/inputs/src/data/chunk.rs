//! A sequence of tokens, and which of them count.

use precast_kernels::abi::MASKED_TOKEN;

/// A sequence of at most seq_len + 1 tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub ids: Vec<u32>,
    /// What each token is predicted as, [`MASKED_TOKEN`] where it does not count; none where it is as itself.
    pub labels: Option<Vec<u32>>,
}

impl Chunk {
    /// Tokens that are predicted as themselves.
    pub fn plain(ids: impl Into<Vec<u32>>) -> Self {
        Self { ids: ids.into(), labels: None }
    }

    /// Tokens before the first that counts.
    pub fn prompt(&self) -> &[u32] {
        let labels = self.labels.as_deref().unwrap_or(&self.ids);
        &self.ids[..labels.iter().position(|label| *label != MASKED_TOKEN).unwrap_or(self.ids.len())]
    }

    /// What each token but the first is predicted as, from the ones before it.
    pub fn targets(&self) -> &[u32] {
        self.labels.as_ref().unwrap_or(&self.ids).get(1..).unwrap_or_default()
    }

    /// Drops what is behind so many tokens.
    pub fn truncate(&mut self, most: usize) {
        self.ids.truncate(most);
        self.labels.iter_mut().for_each(|labels| labels.truncate(most));
    }

    /// Lays it out as inputs and targets, which are 0 and masked where it ends before them.
    pub fn lay_out(&self, ids: &mut [u32], targets: &mut [u32]) {
        let place = |(slot, word): (&mut u32, &u32)| *slot = *word;
        ids.iter_mut().zip(&self.ids).for_each(place);
        targets.iter_mut().zip(self.targets()).for_each(place);
    }

    /// Tokens that count.
    pub fn counted(&self) -> usize {
        self.targets().iter().filter(|target| **target != MASKED_TOKEN).count()
    }

    /// Everything that is learnt from it, as bytes: for digests.
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        [&self.ids].into_iter().chain(&self.labels).map(|words| bytemuck::cast_slice(words))
    }
}
