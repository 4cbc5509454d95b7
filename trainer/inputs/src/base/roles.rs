//! The models of a run, by what they are in it.

use std::fmt;

/// The part that a model plays in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is learnt from.
    Teacher,
    /// It trains.
    Student,
}

impl Role {
    /// The teacher first, as messages and records list them.
    pub const ALL: [Self; 2] = [Role::Teacher, Role::Student];

    /// Its name in messages and records.
    pub fn name(self) -> &'static str {
        match self {
            Role::Teacher => "teacher",
            Role::Student => "student",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something of each model of a run: of one that trains, and of its teacher if it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Models<T> {
    /// The teacher's.
    pub teacher: Option<T>,
    /// The student's, which trains.
    pub student: T,
}

impl<T> Models<T> {
    /// Returns each with its role, the teacher first.
    pub fn iter(&self) -> impl Iterator<Item = (Role, &T)> {
        self.teacher.iter().map(|model| (Role::Teacher, model)).chain([(Role::Student, &self.student)])
    }

    /// Returns each, the student first: what both have is taken from it.
    pub fn student_first(&self) -> impl Iterator<Item = &T> {
        [&self.student].into_iter().chain(&self.teacher)
    }

    /// Borrows each.
    pub fn as_ref(&self) -> Models<&T> {
        Models { teacher: self.teacher.as_ref(), student: &self.student }
    }

    /// Maps each model's value, if that succeeds of all.
    ///
    /// # Errors
    /// The first one's, the teacher's before the student's.
    pub fn try_map<U, E>(&self, mut of: impl FnMut(&T) -> Result<U, E>) -> Result<Models<U>, E> {
        Ok(Models { teacher: self.teacher.as_ref().map(&mut of).transpose()?, student: of(&self.student)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_come_with_their_roles_and_a_teacher_may_be_absent() {
        let list = |models: Models<u8>| models.iter().map(|(role, of)| (role.name(), *of)).collect::<Vec<_>>();
        let (pair, alone) = (Models { teacher: Some(1), student: 2 }, Models { teacher: None, student: 2 });
        assert_eq!(list(pair), [("teacher", 1), ("student", 2)]);
        assert_eq!(list(alone), [("student", 2)]);
        assert_eq!(pair.student_first().collect::<Vec<_>>(), [&2, &1]);
        assert_eq!(alone.try_map(|of| Ok::<_, ()>(of + 1)).unwrap().student, 3);
        assert_eq!(pair.try_map(|of| if *of == 2 { Err(*of) } else { Ok(()) }), Err(2));
    }
}
