//! The disk space that a run takes.

/// Sizes of what a run keeps.
#[derive(Clone, Copy, Debug)]
pub struct DiskSpace {
    /// Size of one checkpoint.
    pub checkpoint_bytes: u64,
    /// Size of the student that is written at the end.
    pub student_bytes: u64,
    /// Checkpoints that are kept; 0 where none is written.
    pub keep: u64,
    /// Checkpoints that are there already.
    pub kept: u64,
    /// Checkpoints that are going to be written.
    pub to_come: u64,
}

impl DiskSpace {
    /// Returns the bytes added to the disk: before the oldest checkpoint goes there is one more than are kept, and
    /// before the old student goes there are two.
    pub fn needed(&self) -> u64 {
        let most = if self.keep == 0 { 0 } else { self.keep.saturating_add(1) };
        // However many may be kept: there are no more than are written.
        self.checkpoint_bytes * most.saturating_sub(self.kept).min(self.to_come) + self.student_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_are_there_at_once() {
        let needed =
            |keep, kept| DiskSpace { checkpoint_bytes: 100, student_bytes: 7, keep, kept, to_come: 9 }.needed();
        assert_eq!([needed(0, 0), needed(1, 0), needed(1, 1), needed(3, 0), needed(3, 3)], [7, 207, 107, 407, 107]);
        assert_eq!(needed(1, 5), 7);
    }

    #[test]
    fn more_are_not_kept_than_are_written() {
        let needed =
            |keep, kept, to_come| DiskSpace { checkpoint_bytes: 100, student_bytes: 7, keep, kept, to_come }.needed();
        assert_eq!([needed(1000, 0, 3), needed(u64::MAX, 2, 3), needed(1, 0, 1), needed(1, 1, 0)], [307, 307, 107, 7]);
    }
}
