//! What a run minimises.

/// What a run minimises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    /// `alpha T^2 KL(teacher || student) + (1 - alpha) CE`, both softmaxes of the first term at temperature T.
    Distill {
        /// Weight of the teacher's term, 0 to 1.
        alpha: f32,
        /// T, above 0.
        temperature: f32,
    },
}

impl Objective {
    /// One of each kind, the numbers apart.
    pub const EVERY: [Self; 1] = [Objective::Distill { alpha: 0.5, temperature: 1.0 }];

    /// Whether two objectives launch the same kernels.
    pub fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    /// Whether there must be a teacher.
    pub fn has_teacher(self) -> bool {
        match self {
            Objective::Distill { .. } => true,
        }
    }
}
