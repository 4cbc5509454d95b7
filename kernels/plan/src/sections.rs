//! Sections of a flat layout: ranges whose gradients become complete together.

/// Sections of a layout, one after the other: by section the ends of its layers, elements. A section without layers has
/// one end.
///
/// The backward pass completes gradients of layers from last to first, then the embedding's. Vectors of all layers lie
/// together, in the last section, which is complete equally late.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sections(Vec<Vec<u64>>);

impl Sections {
    /// # Panics
    /// If there is no section, or one without an end.
    pub(crate) fn new(sections: Vec<Vec<u64>>) -> Self {
        assert!(!sections.is_empty() && sections.iter().all(|ends| !ends.is_empty()), "sections have ends");
        Self(sections)
    }

    /// Returns the number of elements, padding included.
    pub(crate) fn elems(&self) -> u64 {
        let last = &self.0[self.0.len() - 1];
        last[last.len() - 1]
    }

    /// Returns the sections in groups of `of` elements. A group that spans two sections or layers belongs to the one
    /// that is complete later: the earlier one, or the vectors.
    pub(crate) fn groups(&self, of: u64) -> Vec<Vec<u64>> {
        let vectors = self.0.len().checked_sub(2);
        let mut start = 0;
        let section = |(index, ends): (usize, &Vec<u64>)| {
            let end = ends[ends.len() - 1];
            let end = if Some(index) == vectors { end / of } else { end.div_ceil(of) }.max(start);
            let ends = ends.iter().map(|one| one.div_ceil(of).clamp(start, end)).collect::<Vec<_>>();
            start = end;
            let inner = ends.len() - 1;
            ends[..inner].iter().copied().chain([end]).collect()
        };
        self.0.iter().enumerate().map(section).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_goes_with_what_is_complete_later() {
        let sections = Sections::new(vec![vec![25], vec![38, 52, 67], vec![70]]);
        assert_eq!(sections.groups(10), [vec![3], vec![4, 6, 6], vec![7]]);
        assert_eq!(Sections::new(vec![vec![2], vec![4, 6], vec![8]]).groups(10), [vec![1], vec![1, 1], vec![1]]);
        assert_eq!(sections.elems(), 70);
    }
}
