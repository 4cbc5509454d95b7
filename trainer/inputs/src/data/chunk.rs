//! A sequence of tokens, and which of them count.

use precast_kernels::abi::MASKED_TOKEN;

/// A sequence of at most seq_len + 1 tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub ids: Vec<u32>,
    /// What each token is predicted as, [`MASKED_TOKEN`] where it does not count; none where it is as itself.
    pub labels: Option<Vec<u32>>,
    /// Tokens that the teacher reads in place of those before the first that counts; none where it reads the same.
    pub teacher_prompt: Option<Vec<u32>>,
    /// Number of its teacher among those of the run.
    pub teacher: u32,
}

impl Chunk {
    /// Tokens that are predicted as themselves.
    pub fn plain(ids: impl Into<Vec<u32>>) -> Self {
        Self { ids: ids.into(), ..Self::default() }
    }

    /// Has the teacher read another prompt before the same completion: that of `teacher`.
    ///
    /// # Errors
    /// The reason for which the tokens of the completion cannot be compared one by one.
    pub fn taught_by(self, teacher: Self) -> Result<Self, String> {
        let [own, other] = [&self, &teacher].map(|chunk| chunk.prompt().len());
        let labels = |chunk: &Self, from: usize| chunk.labels.as_ref().map(|labels| labels[from..].to_vec());
        if self.ids[own..] != teacher.ids[other..] || labels(&self, own) != labels(&teacher, other) {
            return Err(
                "teacher_prompt: behind it the completion has other tokens than behind prompt, so they cannot \
                be compared one by one: end both alike, as with the same blank or line break"
                    .to_owned(),
            );
        }
        self.after(teacher.ids[..other].to_vec())
    }

    /// Has the teacher read other tokens before the first that counts.
    ///
    /// # Errors
    /// The reason for which one of them predicts nothing.
    pub fn after(self, teacher_prompt: Vec<u32>) -> Result<Self, String> {
        for (name, tokens) in [("prompt", self.prompt()), ("teacher_prompt", &teacher_prompt)] {
            if tokens.is_empty() {
                return Err(format!("{name}: it has no tokens, and a completion is predicted from at least one"));
            }
        }
        Ok(Self { teacher_prompt: Some(teacher_prompt), ..self })
    }

    /// Tokens that the teacher reads.
    pub fn taught(&self) -> impl Iterator<Item = u32> {
        let (prompt, behind) = match &self.teacher_prompt {
            Some(prompt) => (&prompt[..], self.prompt().len()),
            None => (&self.ids[..], self.ids.len()),
        };
        prompt.iter().chain(&self.ids[behind..]).copied()
    }

    /// Tokens that it holds in memory.
    pub fn tokens(&self) -> usize {
        self.ids.len() + self.teacher_prompt.as_ref().map_or(0, Vec::len)
    }

    /// Places that it takes: those of the student's tokens that predict, or of the teacher's, if those are more.
    pub fn places(&self) -> usize {
        self.targets().len().max(self.taught().count().saturating_sub(1))
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

    /// Drops what either model would read behind so many tokens.
    pub fn cut(&mut self, most: usize) {
        let longer = self.teacher_prompt.as_ref().map_or(0, |prompt| prompt.len().saturating_sub(self.prompt().len()));
        self.truncate(most.saturating_sub(longer));
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
        let all = [&self.ids].into_iter().chain(&self.labels).chain(&self.teacher_prompt);
        let teacher = (self.teacher > 0).then(|| bytemuck::bytes_of(&self.teacher));
        all.map(|words| bytemuck::cast_slice(words)).chain(teacher)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prompt of so many tokens from `first` on, and a completion of four, the second of which does not count.
    fn row(first: u32, prompt: usize) -> Chunk {
        let prompt: Vec<u32> = (first..).take(prompt).collect();
        let masked = std::iter::repeat_n(MASKED_TOKEN, prompt.len());
        let labels = masked.chain([90, MASKED_TOKEN, 92, 93]).collect();
        Chunk { ids: [&prompt[..], &[90, 91, 92, 93]].concat(), labels: Some(labels), ..Chunk::default() }
    }

    #[test]
    fn a_completion_is_the_same_behind_either_prompt() {
        let both = row(10, 2).taught_by(row(20, 3)).unwrap();
        assert_eq!(both.taught().collect::<Vec<_>>(), [20, 21, 22, 90, 91, 92, 93]);
        assert_eq!((both.places(), both.counted()), (6, 3));
        let shorter = row(10, 3).taught_by(row(20, 1)).unwrap();
        assert_eq!((shorter.taught().collect::<Vec<_>>(), shorter.places()), (vec![20, 90, 91, 92, 93], 6));
        assert_ne!(both.parts().collect::<Vec<_>>(), row(10, 2).parts().collect::<Vec<_>>());
        let mut other = row(20, 3);
        other.ids[6] = 94;
        assert!(row(10, 2).taught_by(other).unwrap_err().contains("other tokens than behind prompt"));
        assert!(row(10, 2).taught_by(row(20, 0)).unwrap_err().starts_with("teacher_prompt: it has no tokens"));
        assert!(row(10, 0).taught_by(row(20, 2)).unwrap_err().starts_with("prompt: it has no tokens"));
    }

    /// Neither model reads more than so many tokens.
    #[test]
    fn a_completion_is_cut_for_both() {
        for (own, teacher) in [(2, 3), (3, 2), (1, 4)] {
            for most in 1..9 {
                let mut row = row(10, own).taught_by(row(20, teacher)).unwrap();
                row.cut(most);
                assert!(row.ids.len() <= most);
                let kept = most.saturating_sub(own.max(teacher)).min(4);
                assert_eq!(row.counted(), [0, 1, 1, 2, 3][kept], "{own} {teacher} {most}");
                assert!(row.counted() == 0 || row.taught().count() <= most);
            }
        }
    }
}
